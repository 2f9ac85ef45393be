package redlock

import "github.com/pawl-go/pawl/internal/lacking"

var cannot = lacking.Reasons{
	Adopting:  "the keys of Redlock do not tell who may take them over: unlock, and lock again",
	Resizing:  "a lock by Redlock has one unit",
	Limiting:  "a lock by Redlock has the limit 1, and no place for another",
	Asking:    "the holder of a lock by Redlock cannot be reached",
	Telling:   "nobody is told anything by Redlock: who waits tries again, who holds learns more when it renews",
	Recording: "beside locks, Redlock keeps nothing: no elections, latches, barriers, once",
}
