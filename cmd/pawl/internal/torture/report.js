// The data of the page, made quick to search, and what of it is looked at.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const kindNames = ["mutex", "rw", "semaphore"];
const Lost = data.ends.indexOf("lost");

// Fields of a class.
const C = { ended: 0, life: 1, writes: 2, refused: 3, finding: 4, units: 5, limit: 6, way: 7, err: 8, granted: 9 };

const names = (data.names || []).map(([name, kind, base], i) => {
	const k = kindNames.indexOf(kind);
	return { name, kind, base, k: k < 0 ? 3 : k, shade: 0, label: name };
});
{
	// Shades in turn, so that neighbours differ. What all names begin with says nothing.
	const turn = [0, 0, 0, 0];
	for (const n of names) n.shade = turn[n.k]++ % 6;
	let prefix = names.length > 1 ? names[0].name : "";
	for (const n of names) while (!n.name.startsWith(prefix)) prefix = prefix.slice(0, -1);
	prefix = prefix.slice(0, Math.max(prefix.lastIndexOf("/"), prefix.lastIndexOf(":")) + 1);
	for (const n of names) n.label = n.name.slice(prefix.length) || n.name;
}

// Each track has its bars in order of grants. A wait may begin long before, and a bar end
// long after others: last[i] is the latest end of bars up to i, first[i] the
// earliest beginning of those from i on.
const tracks = [];
const lanes = data.lanes.map((lane, index) => {
	let at = 0;
	const own = (lane.tracks || []).map((count, number) => {
		const t = {
			lane: index, number, count, y: 0,
			ask: new Float64Array(count), start: new Float64Array(count), look: new Float64Array(count), end: new Float64Array(count),
			first: new Float64Array(count), last: new Float64Array(count),
			name: new Uint32Array(count), token: lane.k.slice(at, at + count), cls: new Uint32Array(count), deadline: lane.d.slice(at, at + count),
		};
		let time = 0, last = -Infinity;
		for (let i = 0; i < count; i++, at++) {
			time += lane.s[at];
			t.start[i] = time;
			t.ask[i] = time - lane.w[at];
			t.look[i] = time + lane.b[at];
			t.end[i] = t.look[i] + lane.e[at];
			t.name[i] = lane.n[at];
			t.cls[i] = lane.c[at];
			t.last[i] = last = Math.max(last, t.end[i]);
		}
		let first = Infinity;
		for (let i = count - 1; i >= 0; i--) t.first[i] = first = Math.min(first, t.ask[i]);
		tracks.push(t);
		return t;
	});
	return { process: lane.p, index, tracks: own, y: 0, height: 0, faults: [], marks: [], gone: [], lives: [] };
});
data.lanes = null; // the arrays above have it all

// firstAfter is the first bar of a track that may end after a time.
function firstAfter(t, time) {
	let low = 0, high = t.count;
	while (low < high) {
		const mid = (low + high) >> 1;
		if (t.last[mid] < time) low = mid + 1; else high = mid;
	}
	return low;
}

// eachIn calls f with the bars of a track that touch a time, waits included.
function eachIn(t, from, to, f) {
	for (let i = firstAfter(t, from); i < t.count && t.first[i] <= to; i++) {
		if (t.ask[i] <= to && t.end[i] >= from && shown[t.name[i]]) f(i);
	}
}

const onLanes = (lane) => lane < 0 ? lanes : [lanes[lane]];
for (const [lane, what, from, to, text] of data.faults || []) {
	for (const l of onLanes(lane)) l.faults.push({ what, from, to, text: data.texts[text] });
}
for (const [lane, what, from, to, text] of data.marks || []) {
	if (lane >= 0) lanes[lane].marks.push({ what, from, to, text: data.texts[text] });
}
for (const [lane, from, to] of data.gone || []) lanes[lane].gone.push({ from, to });
for (const [lane, from, to] of data.lives || []) lanes[lane].lives.push({ from, to });

// Which names are shown: by kind, and by what is typed.
const shown = new Uint8Array(names.length).fill(1);
const kindShown = [true, true, true, true];
let query = "";

function filter() {
	const words = query.trim().toLowerCase();
	names.forEach((n, i) => shown[i] = kindShown[n.k] && (exactly(words) ? n.name.toLowerCase() === words : n.name.toLowerCase().includes(words)) ? 1 : 0);
	redraw();
}

// A whole name means that one, although others may begin with it.
function exactly(words) {
	return names.some((n) => n.name.toLowerCase() === words);
}

// The time that is looked at, in microseconds.
const view = { from: 0, to: data.end };
const narrowest = 20;

function look(from, to) {
	const margin = data.end * .004;
	const span = Math.min(Math.max(to - from, narrowest), data.end + 2 * margin);
	const middle = (from + to) / 2;
	from = Math.min(Math.max(middle - span / 2, -margin), data.end + margin - span);
	view.from = from;
	view.to = from + span;
	redraw();
}

function zoom(by, around) {
	if (around === undefined) around = (view.from + view.to) / 2;
	const span = Math.min(Math.max((view.to - view.from) * by, narrowest), data.end * 1.008);
	const part = (around - view.from) / (view.to - view.from);
	look(around - part * span, around - part * span + span);
}

const move = (part) => look(view.from + part * (view.to - view.from), view.to + part * (view.to - view.from));
const everything = () => look(-data.end * .004, data.end * 1.004);

// Times are said as seconds, as precisely as they are seen.
function seconds(time, digits) {
	return (time / 1e6).toFixed(digits === undefined ? 6 : digits);
}

function long(time) {
	const n = Math.abs(time);
	if (n >= 1e6) return (time / 1e6).toFixed(3) + " s";
	if (n >= 1e3) return (time / 1e3).toFixed(n >= 1e5 ? 0 : n >= 1e4 ? 1 : 2) + " ms";
	return Math.round(time) + " µs";
}

let due = false;
function redraw() {
	if (due) return;
	due = true;
	requestAnimationFrame(() => { due = false; draw(); });
}
