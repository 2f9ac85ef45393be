package servers

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ErrNoZooKeeper: the server's program is not installed.
var ErrNoZooKeeper = errors.New("zookeeper is not installed: `make test` installs it, or: apt-get install zookeeper")

// zookeeperJar names the jars that it needs in its manifest.
const zookeeperJar = "/usr/share/java/zookeeper.jar"

// ZooKeeperTick is the tick of servers that are started here: sessions may be as
// short as two of them.
const ZooKeeperTick = 200 * time.Millisecond

// ZooKeeperOptions of a server. The zero value allows sessions of 400 ms to a day.
type ZooKeeperOptions struct {
	Config []string // further lines, as in "maxSessionTimeout=4000"
}

// ZooKeeper is a server that was started here: a standalone one, or one of a
// [ZooKeeperEnsemble].
type ZooKeeper struct {
	daemon
	opts   ZooKeeperOptions
	number int // in its ensemble, from 1; 0: it has none
}

// StartZooKeeper starts a server that keeps its data in dir, and returns when it
// serves.
func StartZooKeeper(dir string, opts ZooKeeperOptions) (*ZooKeeper, error) {
	if err := haveZooKeeper(); err != nil {
		return nil, err
	}
	z := newZooKeeper(dir, opts)
	var err error
	if z.port, err = takePort(); err != nil {
		return nil, err
	}
	if err := z.configure(); err != nil {
		return nil, err
	}
	if err := z.start(); err != nil {
		return nil, err
	}
	return z, nil
}

func haveZooKeeper() error {
	if _, err := exec.LookPath("java"); err != nil {
		return ErrNoZooKeeper
	}
	if _, err := os.Stat(zookeeperJar); err != nil {
		return ErrNoZooKeeper
	}
	return nil
}

func newZooKeeper(dir string, opts ZooKeeperOptions) *ZooKeeper {
	z := &ZooKeeper{daemon: daemon{name: "zookeeper", dir: dir}, opts: opts}
	z.command, z.hello = z.server, z.serves
	return z
}

// RunZooKeeper starts a server for a test, and stops it at its end.
func RunZooKeeper(t testing.TB, opts ZooKeeperOptions) *ZooKeeper {
	t.Helper()
	opts.Config = append([]string{"forceSync=no"}, opts.Config...) // see unsynced
	z, err := StartZooKeeper(t.TempDir(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(z.Kill)
	return z
}

// URL names the server as pawl's --store does.
func (z *ZooKeeper) URL() string { return "zk://" + z.Addr() }

func (z *ZooKeeper) data() string { return filepath.Join(z.dir, "data") }

func (z *ZooKeeper) config() string { return filepath.Join(z.dir, "zoo.cfg") }

func (z *ZooKeeper) configure() error {
	config := append([]string{
		"dataDir=" + z.data(), "clientPort=" + strconv.Itoa(z.port), "clientPortAddress=127.0.0.1",
		"tickTime=" + strconv.Itoa(int(ZooKeeperTick.Milliseconds())), "maxSessionTimeout=86400000",
		"maxClientCnxns=0", "admin.enableServer=false", "4lw.commands.whitelist=*",
	}, z.opts.Config...)
	if err := os.WriteFile(z.config(), []byte(strings.Join(config, "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("configure zookeeper: %w", err)
	}
	if z.number == 0 {
		return nil // it makes its data folder by itself
	}
	if err := os.MkdirAll(z.data(), 0o700); err != nil {
		return fmt.Errorf("configure zookeeper: %w", err)
	}
	if err := os.WriteFile(filepath.Join(z.data(), "myid"), []byte(strconv.Itoa(z.number)+"\n"), 0o600); err != nil {
		return fmt.Errorf("configure zookeeper: %w", err)
	}
	return nil
}

func (z *ZooKeeper) server() *exec.Cmd {
	class := "ZooKeeperServerMain"
	if z.number != 0 {
		class = "quorum.QuorumPeerMain"
	}
	cmd := exec.Command("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-cp", zookeeperJar+":/usr/share/java/slf4j-simple.jar",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dzookeeper.fastleader.maxNotificationInterval=500", // ms; else who was cut off is slow to come back
		"org.apache.zookeeper.server."+class, z.config())
	cmd.SysProcAttr = dieWithParent()
	cmd.Dir = z.dir
	return cmd
}

// serves tells whether the server, and not another on its port, serves.
func (z *ZooKeeper) serves(int) bool {
	if out, err := z.Ask("conf"); err != nil || !strings.Contains(out, "dataDir="+z.data()) {
		return false
	}
	out, err := z.Ask("srvr")
	return err == nil && strings.Contains(out, "Mode: ")
}

// Ask sends one of the commands of four letters, as in "srvr".
func (z *ZooKeeper) Ask(command string) (string, error) {
	c, err := net.DialTimeout("tcp", z.Addr(), time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(c, command); err != nil {
		return "", err
	}
	out, err := io.ReadAll(c)
	return string(out), err
}

// Restart kills the server if it runs, and starts it again on the same port,
// with the data it had written or, without keep, with none.
func (z *ZooKeeper) Restart(keep bool) error {
	z.Kill()
	if !keep {
		if err := os.RemoveAll(z.data()); err != nil {
			return fmt.Errorf("remove the data of zookeeper: %w", err)
		}
		if err := z.configure(); err != nil {
			return err
		}
	}
	return z.start()
}
