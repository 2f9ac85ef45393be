package engine

// effects are what an event makes the engine do. Lines and claims only note
// them; [Engine.commit] does it.
//
// Those that must keep the order in which events happened (dates, ids, what
// observers are told) are carried out before the line's mutex is released, and
// call nobody. All others are carried out after that, by the goroutine that brought
// the event; those of two events may be carried out side by side, in any order.
type effects struct {
	n    int
	few  [4]effect // mostly enough, and costs no allocation
	more []effect
}

type effectKind uint8

const (
	// In order: by Engine.note.
	fxDate       effectKind = iota // the claim's next date may be another
	fxUndate                       // the claim has no date any longer
	fxRegister                     // notices about the id are for the claim
	fxUnregister                   // they are for nobody
	fxEvent                        // observers are told
	fxDepart                       // Close waits for the departure

	// In any order: by Engine.do. What Close or a Leave has to wait for because of fxRetire
	// or fxEnded is noted in order.
	fxAttempt // a goroutine sends the claim's requests until it holds or is given up
	fxStop    // the attempt's request is cancelled
	fxWake    // the attempt's Wait is ended
	fxNudge   // the attempt's rest is ended
	fxServed  // the caller has its result
	fxEnded   // the tenant holds no longer
	fxPressed // others want what the tenant holds
	fxRetire  // the store is told that the claim has left
	fxGuard   // the same, once the claim that was handed over is adopted
	fxConsult // the caller's Backoff is asked
	fxShrink  // the claim is brought back to a reader's units
	fxRivals  // the other lines of the name are told that this one waits
	fxHurry   // a claim of another line is to be renewed
)

type effect struct {
	kind      effectKind
	claim     *claim
	id        string
	attempt   *attempt
	caller    *caller
	tenant    *tenant
	set       *Grant // that the tenant is a part of, or nil
	departure *departure
	event     *event
	failures  int
	err       error
}

// event is an Event with its observer.
type event struct {
	Event
	observe func(Event)
}

func (fx *effects) add(x effect) {
	if fx.n < len(fx.few) {
		fx.few[fx.n] = x
		fx.n++
		return
	}
	fx.more = append(fx.more, x)
}

// tell has an observer told, if there is one.
func (fx *effects) tell(terms *Terms, e Event) {
	if terms.Observe != nil {
		fx.tellObserver(terms.Observe, e)
	}
}

// tellObserver is apart from tell, so that only an event that is observed moves to the
// heap.
func (fx *effects) tellObserver(observe func(Event), e Event) {
	fx.add(effect{kind: fxEvent, event: &event{e, observe}})
}

func (fx *effects) date(cl *claim)   { fx.add(effect{kind: fxDate, claim: cl}) }
func (fx *effects) undate(cl *claim) { fx.add(effect{kind: fxUndate, claim: cl}) }

// commit carries out what an event of the line has brought, and unlocks it.
func (e *Engine) commit(l *line, fx *effects) {
	e.keepOrder(l, fx)
	e.perform(fx)
}

// keepOrder carries out what must keep its order, and unlocks the line.
func (e *Engine) keepOrder(l *line, fx *effects) {
	for i := range fx.n {
		e.note(fx, &fx.few[i])
	}
	for i := range fx.more {
		e.note(fx, &fx.more[i])
	}
	l.mu.Unlock()
}

// perform carries out what needs no order.
func (e *Engine) perform(fx *effects) {
	for i := range fx.n {
		e.do(&fx.few[i])
	}
	for i := range fx.more {
		e.do(&fx.more[i])
	}
}

// note carries out an effect that must keep its order. The line's mutex is held.
func (e *Engine) note(fx *effects, x *effect) {
	switch x.kind {
	case fxDate:
		e.renewer.watch(x.claim)
	case fxUndate:
		e.renewer.remove(x.claim)
	case fxRegister:
		// The claim of a former owner in this process gets no notices any longer: it
		// looks at once.
		if former := e.register(x.id, x.claim); former != nil {
			fx.add(effect{kind: fxHurry, claim: former})
		}
	case fxUnregister:
		e.unregister(x.id, x.claim)
	case fxEvent:
		e.observers.tell(x.event)
	case fxDepart, fxRetire:
		e.departing(x.departure)
	case fxEnded:
		if x.err != ErrReleased {
			x.tenant.claim.telling.Add(1) // until ended has it told: the claim is not to leave before
		}
	}
}

func (e *Engine) do(x *effect) {
	switch x.kind {
	case fxAttempt:
		e.runAttempt(x.claim, x.attempt)
	case fxStop:
		x.attempt.stop()
	case fxWake:
		x.attempt.wake()
	case fxNudge:
		x.attempt.nudge()
	case fxServed:
		close(x.caller.ready)
	case fxEnded:
		e.ended(x.tenant, x.set, x.err)
	case fxPressed:
		x.tenant.signals.press()
		if x.set != nil {
			x.set.signals.press()
		}
	case fxRetire:
		e.retire(x.departure)
	case fxGuard:
		e.guard(x.departure)
	case fxConsult:
		e.consult(x.claim, x.caller, x.failures, x.err)
	case fxShrink:
		cl := x.claim // the effect itself must not move to the heap
		e.spawn(func() { e.shrink(cl) })
	case fxRivals:
		e.tellRivals(x.claim.line)
	case fxHurry:
		e.hurry(x.claim)
	}
}
