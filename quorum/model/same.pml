/*
 * Which states of quorum.pml are the same: those that differ only in the size of their
 * tokens, not in their order, and those that differ only in which node, or which claim,
 * is which. After each step the model goes on with one of them. Any permutation will do,
 * so the keys need not be exact: they decide only how many states are found to be alike.
 */

/* spread makes room for a new token between any two: all are even then, and top is odd
   and above them. */
inline spread() {
	top = 2 * last;
	last = 2 * last;
	for (i : 0 .. N - 1) {
		mark[i] = 2 * mark[i];
		best[i] = 2 * best[i];
		top = (mark[i] > top -> mark[i] : top);
		top = (best[i] > top -> best[i] : top)
	}
	for (i : 0 .. C * N - 1) {
		told[i] = 2 * told[i];
		top = (told[i] > top -> told[i] : top)
	}
#ifdef OLD_LOWER
	for (i : 0 .. C - 1) {
		wants[i] = 2 * wants[i];
		top = (wants[i] > top -> wants[i] : top)
	}
#endif
	top++
}

/* compress numbers the tokens anew, in their order, without gaps. */
inline compress() {
	for (i : 0 .. VALUES - 1) { rank[i] = 0 }
	rank[last] = 1;
	for (i : 0 .. N - 1) { rank[mark[i]] = 1; rank[best[i]] = 1 }
	for (i : 0 .. C * N - 1) { rank[told[i]] = 1 }
#ifdef OLD_LOWER
	for (i : 0 .. C - 1) { rank[wants[i]] = 1 }
#endif
	rank[0] = 0;
	x = 0;
	for (i : 1 .. VALUES - 1) {
		x = x + rank[i];
		rank[i] = x
	}
	last = rank[last];
	for (i : 0 .. N - 1) { mark[i] = rank[mark[i]]; best[i] = rank[best[i]] }
	for (i : 0 .. C * N - 1) { told[i] = rank[told[i]] }
#ifdef OLD_LOWER
	for (i : 0 .. C - 1) { wants[i] = rank[wants[i]] }
#endif
}

inline swap(a, b) { x = a; a = b; b = x }
inline swap_int(a, b) { a = a ^ b; b = a ^ b; a = a ^ b }

inline sort_claims() {
	for (i : 0 .. C - 1) {
		key[i] = held[i] * 7;
		for (j : 0 .. N - 1) {
			key[i] = key[i] + (left[at(i, j)] + 5) * (told[at(i, j)] + 3 * heard[at(i, j)] + 1);
			key[i] = key[i] + 4096 * (holder[j] == claim(i))
		}
	}
	for (i : 1 .. C - 1) {
		for (j : 1 .. C - i) {
			if
			:: key[j-1] > key[j] ->
				swap_int(key[j-1], key[j]);
				swap(held[j-1], held[j]);
#ifdef OLD_LOWER
				swap(wants[j-1], wants[j]);
#endif
				for (k : 0 .. N - 1) {
					swap(told[at(j-1, k)], told[at(j, k)]);
					swap(left[at(j-1, k)], left[at(j, k)]);
					swap(heard[at(j-1, k)], heard[at(j, k)]);
					if
					:: holder[k] == claim(j-1) -> holder[k] = claim(j)
					:: holder[k] == claim(j) -> holder[k] = claim(j-1)
					:: else
					fi
				}
			:: else
			fi
		}
	}
}

inline sort_nodes() {
	for (i : 0 .. N - 1) {
		key[i] = ((mark[i] * 8 + holder[i]) * 8 + lease[i]) * 2 + undone[i];
		key[i] = (key[i] * 2 + out[i]) * 8 + wait[i];
		for (j : 0 .. N - 1) { key[i] = key[i] + ((reads[i] >> j) & 1) * 101 }
		key[i] = key[i] * 31 + best[i];
		for (j : 0 .. C - 1) {
			key[i] = ((key[i] * 29 + told[at(j, i)]) * 5 + left[at(j, i)]) * 2 + heard[at(j, i)]
		}
	}
	for (i : 1 .. N - 1) {
		for (j : 1 .. N - i) {
			if
			:: key[j-1] > key[j] ->
				swap_int(key[j-1], key[j]);
				swap(holder[j-1], holder[j]);
				swap(lease[j-1], lease[j]);
				swap(undone[j-1], undone[j]);
				swap(mark[j-1], mark[j]);
				swap(out[j-1], out[j]);
				swap(wait[j-1], wait[j]);
				swap(reads[j-1], reads[j]);
				swap(best[j-1], best[j]);
				for (k : 0 .. N - 1) {
					x = ((reads[k] >> (j-1)) ^ (reads[k] >> j)) & 1;
					reads[k] = reads[k] ^ ((x << (j-1)) | (x << j))
				}
				for (k : 0 .. C - 1) {
					swap(told[at(k, j-1)], told[at(k, j)]);
					swap(left[at(k, j-1)], left[at(k, j)]);
					swap(heard[at(k, j-1)], heard[at(k, j)])
				}
			:: else
			fi
		}
	}
}
