/*
 * Tokens, quarantine and mutual exclusion of a quorum: a model for spin.
 *
 * N nodes keep one name for C claims of clients. The nodes never talk to each other.
 * Clients come, are granted, renew, leave, give up and come again without end; nodes
 * lose their memory without end. In each history:
 *
 *	exclusion	no two claims are believed at a time
 *	tokens		each grant's token is greater than that of the grant before
 *
 * `make model` runs it: as it is, where both must hold in each state that can be
 * reached, and with one rule left out or changed (-D, see below), where spin must find
 * a history that breaks the one or the other. model_test.go has the list.
 *
 * How it maps to the protocol:
 *
 * - Time is ticks of the clients' clocks. A node keeps a claim for LEASE ticks at
 *   least: TTL less what its clock may run fast. It may forget later: clocks may be
 *   slow, and what has expired goes with the next request. So a fast clock and a slow
 *   one are both in it.
 * - A request carries the time it was sent. What a client counts is worth VALID ticks
 *   from there, however long the request and the reply were under way. A node carries
 *   out a request at any time, also after the claim has gone (late()), and twice
 *   (again()); a reply comes at any time later (reply()), or never.
 * - A grant by hand-over is a vote too: it happens at any time after the node is free.
 *   The claims of one that left go node by node (forget_claim()).
 * - A client may propose any token: its clock is anything. So a node's token is any that
 *   is greater than its mark. Only the order of tokens matters; after each step they are
 *   numbered anew without gaps (compress()). So there is no greatest token, and no last
 *   grant: what passes, passes for histories of any length.
 * - The write-back is again(): a request that asks for at least what another node told.
 *   Which value a client chooses, which nodes it asks, and when, is left open: any
 *   policy is right that counts as count() does.
 * - Nodes are alike, and so are claims: states that differ only in who is who are one
 *   (sort_nodes(), sort_claims()).
 *
 * What it leaves out: other names; units and limits, kinds, queues and who is next (any
 * claim may be granted where nothing holds); spare tokens; that anybody ever gets the
 * lock; how a quorum is made, or made anew by an operator, when most nodes have no memory
 * (here it stops, and that breaks nothing); nodes that come back with an old memory, as
 * from a snapshot, or without their last writes: -DROLLBACK shows that they break it.
 */

#ifndef N
#define N 3	/* nodes */
#endif
#ifndef C
#define C 2	/* claims at a time, beside those that are gone but still held at a node */
#endif
#ifndef TTL
#define TTL 2	/* the TTL of all claims, and the largest that a node grants */
#endif
#ifndef DRIFT
#define DRIFT 0	/* how many ticks a node's clock may be ahead after a TTL */
#endif
#define LEASE (TTL - DRIFT)
#ifndef MAJORITY
#define MAJORITY (N / 2 + 1)
#endif
#ifndef VALID	/* what a client counts on, from the sending */
#define VALID (TTL - DRIFT)
#endif
#ifndef WAIT	/* how long a node that has lost its memory stays out, by its own clock */
#define WAIT (TTL - DRIFT)
#endif
#ifndef READS	/* the marks of how many nodes it takes then */
#define READS MAJORITY
#endif

/* What can be left out, or done otherwise. */
#ifdef NO_EPOCH	/* a node votes although it has lost its memory */
#define MAY_VOTE(n) true
#else
#define MAY_VOTE(n) (!out[n])
#endif
#ifdef READ_FIRST	/* marks are read before the wait is over */
#define MAY_READ(n) out[n]
#else
#define MAY_READ(n) (out[n] && wait[n] == 0)
#endif
#ifdef READ_OUT	/* marks are also read where they were lost */
#define HAS_MARK(n) true
#else
#define HAS_MARK(n) (!out[n])
#endif
#ifdef STALE	/* who waited and read before the node lost its memory once more may bring it back */
#define MAY_RETURN(n) out[n]
#else
#define MAY_RETURN(n) (out[n] && wait[n] == 0)
#endif
#ifdef RAISE_ANY	/* a repeated request is confirmed also where the claim does not hold */
#define MAY_REPEAT(c, n) true
#else
#define MAY_REPEAT(c, n) (holder[n] == claim(c))
#endif

/* What is left out to play more nodes. */
#ifdef PROMPT	/* requests and replies take no time, and are not lost; nothing is withdrawn */
#define DELAY 0
#define LATE false
#else
#define DELAY VALID
#define LATE true
#endif

#ifdef FEW_OUT	/* no more than a minority is without memory at a time */
#define MAY_LOSE(n) (out[n] || outs < N - MAJORITY)
#else
#define MAY_LOSE(n) true
#endif

/* Whose claim a node keeps: nobody's, one's that is gone, or claim(c). */
#define NOBODY 0
#define GONE 1
#define claim(c) ((c) + 2)

#define at(c, n) ((c) * N + (n))

/* Nodes. */
byte holder[N];
byte lease[N];	/* ticks that it keeps the holder's claim at least */
bool undone[N];	/* the holder has withdrawn its claim from here, with the token it has now */
byte mark[N];	/* no less than any token that it has drawn */
bool out[N];	/* has lost its memory */
byte wait[N];	/* ticks that it stays out at least */
byte reads[N];	/* whose marks were read for it, as bits */
byte best[N];	/* the greatest of them */

/* Claims, by node. */
bool held[C];	/* a majority was counted: its client believes */
byte told[C * N];	/* the token that the node told; 0 when it no longer matters */
byte left[C * N];	/* ticks that this is worth */
bool heard[C * N];	/* the reply has come */
#ifdef OLD_LOWER
byte wants[C];	/* the token that it wrote back, chosen once for all */
#endif

byte outs;	/* how many nodes are out */
byte last;	/* the token of the latest grant */

/* Scratch, of no meaning between steps. */
#define VALUES (2 * (C * N + 2 * N + C + 1) + 2)
hidden byte rank[VALUES];
hidden int key[N + C];
hidden byte i, j, k, x, lower, upper;

#include "same.pml"

/* forget_claim ends claim a, whose place the next one takes. Where it holds, it stays
   until it expires, or until a node hears that it has left. */
inline forget_claim(a) {
	held[a] = false;
#ifdef OLD_LOWER
	wants[a] = 0;
#endif
	for (k : 0 .. N - 1) {
		told[at(a, k)] = 0;
		left[at(a, k)] = 0;
		heard[at(a, k)] = false;
		if
		:: holder[k] == claim(a) -> holder[k] = GONE; lease[k] = 0; undone[k] = false
		:: else
		fi
	}
}

/* tick lets time pass. A client stops believing in the instant in which it has no
   majority left. */
inline tick() {
	for (i : 0 .. N - 1) {
		lease[i] = (lease[i] > 0 -> lease[i] - 1 : 0);
		wait[i] = (wait[i] > 0 -> wait[i] - 1 : 0)
	}
	for (i : 0 .. C - 1) {
		x = 0;
		for (j : 0 .. N - 1) {
			left[at(i, j)] = (left[at(i, j)] > 0 -> left[at(i, j)] - 1 : 0);
			if
			:: left[at(i, j)] == 0 -> told[at(i, j)] = 0; heard[at(i, j)] = false
			:: else -> x = x + heard[at(i, j)]
			fi
		}
		if
		:: held[i] && x < MAJORITY -> forget_claim(i)
		:: else
		fi
	}
}

/* vote grants claim c at node n with token v, for a request that was sent ago ticks ago. */
inline vote() {
	mark[n] = v;
	holder[n] = claim(c);
	lease[n] = LEASE;
	left[at(c, n)] = VALID - ago;
	told[at(c, n)] = (held[c] || ago == VALID -> 0 : v);
	heard[at(c, n)] = !LATE;
	printf("node %d grants claim %d token %d, asked %d ago\n", n, c, v, ago)
}

/* late grants somebody who has gone already. */
inline late() {
	mark[n] = v;
	holder[n] = GONE;
	printf("node %d grants one that is gone token %d\n", n, v)
}

/* again repeats a request where the claim holds: a renewal, the repetition of one whose
   reply was lost, or one that asks for at least v: a write-back, or a vote after one that
   was withdrawn, which asks for more than was withdrawn. Its reply comes at once, or too
   late. */
inline again() {
	x = (!undone[n] || v > mark[n]);
#ifndef WITHDRAW_ANY	/* a withdrawal removes the claim whatever token it has by then */
	undone[n] = !x;
#endif
#ifdef UNDONE_COUNTS	/* what was withdrawn counts when it is told again */
	x = true;
#endif
#ifdef NO_RAISE	/* the claim's token is raised, but not the mark */
	v = (v > mark[n] -> v : mark[n]);
#else
	mark[n] = (v > mark[n] -> v : mark[n]);
	v = mark[n];
#endif
	lease[n] = (holder[n] == claim(c) -> LEASE : lease[n]);
	if
	:: ago < VALID && x ->
		left[at(c, n)] = VALID - ago;
		told[at(c, n)] = (held[c] -> 0 : v);
		heard[at(c, n)] = true
	:: else
	fi;
	printf("node %d has claim %d again, token %d, asked %d ago\n", n, c, v, ago)
}

inline reply() {
	heard[at(c, n)] = true;
#ifdef FROM_REPLY	/* validity is counted from the reply */
	left[at(c, n)] = VALID;
#endif
	printf("claim %d hears from node %d\n", c, n)
}

/* withdraw takes back what node n has granted claim c, which goes on to gather votes. The
   node may be told at any time, and then removes the claim only if it has this token:
   once it has a greater one, undone is false. */
inline withdraw() {
	undone[n] = (undone[n] || holder[n] == claim(c));
	told[at(c, n)] = 0;
	left[at(c, n)] = 0;
	heard[at(c, n)] = false;
	printf("claim %d withdraws from node %d\n", c, n)
}

/* count takes what node n told for the token of claim c: T. A majority must have told no
   more than T: one of them took part in each grant before. And a majority must hold it with
   no less: one of them takes part in each grant to come. Where a majority told the same, this
   is one majority; where all nodes replied, T is the one in the middle. */
inline count() {
	v = told[at(c, n)];
	lower = 0;
	upper = 0;
	for (i : 0 .. N - 1) {
		lower = lower + (heard[at(c, i)] && told[at(c, i)] <= v);
		upper = upper + (heard[at(c, i)] && told[at(c, i)] >= v)
	}
#ifdef NO_WRITE_BACK	/* it counts as soon as a majority has replied */
	upper = N;
#endif
#ifdef LEAST	/* the least that a majority told counts */
	lower = N;
#endif
#ifdef OLD_LOWER	/* T stays the token, although the votes it was the greatest of may be over */
	wants[c] = (wants[c] == 0 && lower >= MAJORITY -> v : wants[c]);
	v = wants[c];
	lower = (v > 0 -> N : 0);
	upper = 0;
	for (i : 0 .. N - 1) { upper = upper + (heard[at(c, i)] && told[at(c, i)] >= v) }
#endif
	if
	:: lower >= MAJORITY && upper >= MAJORITY ->
		printf("claim %d holds with token %d, after %d\n", c, v, last);
#ifndef ONLY_TOKENS
		for (i : 0 .. C - 1) { assert(!held[i]) }	/* exclusion */
#endif
#ifndef ONLY_EXCLUSION
		assert(v > last);	/* tokens */
		last = v;
#endif
		held[c] = true;
		for (i : 0 .. N - 1) { told[at(c, i)] = 0 }
	:: else
	fi
}

/* lose takes all that node n knew. */
inline lose() {
	holder[n] = NOBODY;
	lease[n] = 0;
	undone[n] = false;
	mark[n] = 0;
	outs = outs + !out[n];
	out[n] = true;
	wait[n] = WAIT;
#ifndef STALE
	reads[n] = 0;
	best[n] = 0;
#endif
	printf("node %d loses its memory\n", n)
}

/* read reads the mark of node m for node n. */
inline read() {
	if
	:: m != n && HAS_MARK(m) ->
		reads[n] = reads[n] | (1 << m);
		best[n] = (mark[m] > best[n] -> mark[m] : best[n]);
		printf("for node %d: the mark of node %d is %d\n", n, m, mark[m])
	:: else
	fi
}

/* come_back lets node n vote again, with the greatest mark that was read for it. */
inline come_back() {
	x = 0;
	for (i : 0 .. N - 1) { x = x + ((reads[n] >> i) & 1) }
	if
	:: x >= READS ->
		out[n] = false;
		outs--;
		wait[n] = 0;
		mark[n] = best[n];
#ifndef STALE
		reads[n] = 0;
		best[n] = 0;
#endif
		printf("node %d is back with mark %d\n", n, mark[n])
	:: else
	fi
}

/* pick chooses any v of 0 .. most. */
inline pick(v, most) {
	do
	:: v < most -> v++
	:: break
	od;
	skip
}

active proctype world() {
	byte c, n, m, v, top, ago;
	do
	:: atomic {
		pick(c, C - 1);
		pick(n, N - 1);
		if
		/* Steps of claim c at node n. */
		:: MAY_VOTE(n) && holder[n] == NOBODY ->
			d_step { spread(); v = mark[n] + 1 }
			pick(v, top);
			pick(ago, DELAY);
			d_step { vote() }
		:: MAY_VOTE(n) && MAY_REPEAT(c, n) ->
			if
			:: pick(m, N - 1);
				v = (heard[at(c, m)] -> told[at(c, m)] : 0)
			:: undone[n] ->
				d_step { spread(); v = mark[n] + 1 }
				pick(v, top)
			fi;
			pick(ago, DELAY);
			d_step { again() }
		:: LATE && told[at(c, n)] > 0 && heard[at(c, n)] ->
			d_step { withdraw() }
		:: holder[n] == claim(c) && undone[n] ->
			d_step { holder[n] = NOBODY; lease[n] = 0; undone[n] = false; printf("node %d hears of the withdrawal\n", n) }
		:: left[at(c, n)] > 0 && !heard[at(c, n)] ->
			d_step { reply() }
		:: told[at(c, n)] > 0 && heard[at(c, n)] && !held[c] ->
			d_step { count(); skip }
#ifdef LEAVE_FIRST	/* who leaves tells the nodes before it stops believing */
		:: held[c] && holder[n] == claim(c) ->
			d_step { holder[n] = GONE; lease[n] = 0; undone[n] = false; printf("node %d hears that claim %d leaves\n", n, c) }
#endif
		/* Steps of claim c: it leaves, or gives up. */
		:: n == 0 ->
			d_step { forget_claim(c); printf("claim %d ends\n", c) }
		/* Steps of node n. */
		:: LATE && c == 0 && MAY_VOTE(n) && holder[n] == NOBODY ->
			d_step { spread(); v = mark[n] + 1 }
			pick(v, top);
			d_step { late() }
		:: c == 0 && holder[n] != NOBODY && lease[n] == 0 ->
			d_step { holder[n] = NOBODY; undone[n] = false; printf("node %d is free\n", n) }
		:: c == 0 && MAY_LOSE(n) ->
			d_step { lose() }
		:: c == 0 && MAY_READ(n) ->
			pick(m, N - 1);
			d_step { read(); skip }
		:: c == 0 && MAY_RETURN(n) ->
			d_step { come_back(); skip }
#ifdef STALE
		:: c == 0 ->
			d_step { reads[n] = 0; best[n] = 0 }
#endif
#ifdef ROLLBACK	/* a node comes back with an older memory */
		:: c == 0 && !out[n] ->
			d_step { holder[n] = NOBODY; lease[n] = 0; undone[n] = false; mark[n] = 0; printf("node %d goes back\n", n) }
#endif
		:: c == 0 && n == 0 ->
			d_step { tick(); printf("tick\n") }
		:: else
		fi;
		d_step {
			compress();
#ifndef NO_SORT
			sort_claims();
			sort_nodes();
#endif
			c = 0;
			n = 0;
			m = 0;
			v = 0;
			top = 0;
			ago = 0
		}
	}
	od
}
