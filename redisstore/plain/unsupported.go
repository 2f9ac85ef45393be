package plain

import "github.com/pawl-go/pawl/internal/lacking"

var cannot = lacking.Reasons{
	Adopting:  "the key of a plain lock does not tell who may take it over: unlock, and lock again",
	Resizing:  "a plain lock has one unit",
	Limiting:  "a plain lock has the limit 1, and no place for another",
	Asking:    "the holder of a plain lock cannot be reached",
	Telling:   "nobody is told anything by a plain lock: who waits looks again, who holds learns more when it renews",
	Recording: "beside locks, the plain recipe keeps nothing: no elections, latches, barriers, once",
}

var errList = lacking.Unsupported("without a prefix, locks cannot be told from the other keys of the database")
