package redisstore

import (
	"strconv"
	"sync"
)

const slots = 16384 // of a cluster

// slotOf returns the slot of all keys that have this text in braces: its CRC16, as
// XMODEM computes it.
func slotOf(tag string) int {
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slots
}

// tags has, for each slot, the smallest number whose digits are of that slot. To find them
// all takes some milliseconds, once.
var tags = sync.OnceValue(func() *[slots]string {
	var all [slots]string
	for n, missing := 0, slots; missing > 0; n++ {
		tag := strconv.Itoa(n)
		if slot := slotOf(tag); all[slot] == "" {
			all[slot] = tag
			missing--
		}
	}
	return &all
})

// slotTag returns what stands in the braces of keys and channels that are of a name's slot, but
// not of that name alone.
func slotTag(name string) string { return tags()[slotOf(name)] }
