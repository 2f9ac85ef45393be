package torture

// Judge finds in a history, of events ordered by At, what must not be.
func Judge(history []Event) *Verdict {
	return &Verdict{}
}
