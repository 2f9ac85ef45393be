// Package filestore keeps claims and records in a folder: locks between the
// processes of one machine, with nothing to install and nothing to run.
//
//	store, err := filestore.Open("/var/lib/myapp/locks")
//
// All processes of the machine that open the same folder exclude each other.
// The folder must be on a local file system, belong to the user who opens it,
// and be writable by nobody else; Open makes it if it is not there, but none above
// it. It should not be where old files are cleaned away, such as /tmp.
//
// A process that is killed releases what it held: the operating system says
// that it is gone, and those who wait learn of it within 200 ms. A claim that
// lingers (see driver.Store.Leave), or was handed over and not adopted yet, stays
// until it runs out. Closing a Store
// ends its claims in the same way.
//
// # Several users, and containers
//
// The members of a group share a folder that root has made for them:
//
//	install -d -m 2770 -g locks /var/lib/pawl
//
// It is known by its mode: writable by the group, and setgid. What is made in it can be
// written by the group, whatever the umask. Its users trust each other, as each of them
// can take any lock; Open refuses the folder to who is no member, and a
// folder that belongs to another user than root or who opens it, that everybody can
// write to, or that is sticky. In /tmp a folder that another user has made before, and
// another user's symbolic link, are refused; nothing in a folder is a link that is followed.
//
// Containers on one machine share a folder on a volume, each with its own PID, time, mount and
// host name spaces: that a process lives is told by a lock on its session's file, and time
// by the kernel's clock since it was booted, less what a time namespace shifts. A user
// namespace in which the folder belongs neither to root nor to the process is refused. Where
// containers have kernels of their own (Kata, gVisor, virtual machines) they can't share a
// folder: it is refused as far as they show a file system of another machine (9P, virtiofs) or
// another boot.
//
// # What lies in the folder
//
//	clock                        the folder's clock (see below)
//	swept                        touched when somebody cleaned up
//	queues/1f/orders%2f42.queue  the queue of the name orders/42
//	queues/1f/lock               what the files beside it are locked by
//	records/03/config.json       the record of that name
//	sessions/ID/session.json     a client with claims or that writes records; locked while it has the folder open
//	sessions/ID/mail             a pipe, with hints to that process: look at this claim
//
// The files can be read at any time (not the pipes), and must not be edited while anybody uses
// the folder. Deleting the whole folder while it is in use makes its users
// fail, and lets others hold the same names in a folder made anew.
//
// # Crashes
//
// Files are written aside and renamed, and changes of a queue are appended and
// count when they are whole, so a process that is killed at any instant leaves
// the old state or the new one. Queues are not forced to the
// disk: a power cut ends all processes, so no claim matters after it, and
// tokens go on rising because they come from a clock whose high-water mark is
// forced to the disk. Records are, and queues whose limit was changed (see
// driver.Store.SetLimit).
//
// A process that is stopped (SIGSTOP) in the few microseconds in which it
// changes a file holds up that file's name, and no other, until it is continued
// or killed; calls of others for that name end with their context meanwhile. One
// that is stopped as it makes its session, or as it moves the clock's mark, every
// five minutes, holds up those who make theirs, and after five minutes all.
//
// # Looking, and full disks
//
// Inspect, List and Load write nothing, so they work where nothing can be
// written. On a full disk nobody new comes in where a file must grow, and those
// who hold go on: a renewal needs no room, nor does the clock's mark, and to
// leave takes room only while others wait for the name or share it. File systems
// that never write in place (btrfs, ZFS) need room for all of that.
package filestore
