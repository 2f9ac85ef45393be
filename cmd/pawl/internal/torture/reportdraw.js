// The drawing: of what is visible, and what is too narrow to be seen by itself as density.
const gutter = 88, strip = 10, feet = 9, most = 2000;
const svgNS = "http://www.w3.org/2000/svg";
const plot = byId("plot"), axis = byId("axis"), chart = byId("chart");
let width = 800, height = 0, bottom = 0;
let chosen = null; // {track, i}
let current = 0; // the finding that is looked at, from 1
const byTime = data.findings.map((_, i) => i).sort((a, b) => data.findings[a].at - data.findings[b].at);

// isAside is whether a name has nothing to do with the finding that is looked at.
function isAside(n) {
	const f = data.findings[current - 1];
	return !!f && f.name !== "" && f.name !== n.name;
}

function el(parent, tag, attributes, text) {
	const e = document.createElementNS(svgNS, tag);
	for (const a in attributes) e.setAttribute(a, attributes[a]);
	if (text !== undefined) e.textContent = text;
	parent.appendChild(e);
	return e;
}

const round = (n) => Math.round(n * 100) / 100;
const X = (time) => gutter + (time - view.from) / (view.to - view.from) * width;
const T = (x) => view.from + (x - gutter) / width * (view.to - view.from);
const clipX = (x) => Math.min(Math.max(x, gutter - 4), gutter + width + 4);

function measure() {
	width = Math.max(200, chart.clientWidth - gutter);
	const all = lanes.reduce((n, l) => n + Math.max(1, l.tracks.length), 0);
	const deepest = lanes.reduce((n, l) => Math.max(n, l.tracks.length), 1);
	height = Math.min(16, Math.max(4, Math.floor(620 / Math.max(1, all)), Math.floor(18 / deepest)));
	let y = 0;
	for (const l of lanes) {
		l.y = y;
		l.height = strip + 2 + Math.max(1, l.tracks.length, Math.ceil(16 / height)) * height + feet;
		l.tracks.forEach((t, i) => t.y = y + strip + 2 + i * height);
		y += l.height;
	}
	bottom = y;
	for (const [svg, h] of [[plot, bottom + 1], [axis, 26]]) {
		svg.setAttribute("width", gutter + width);
		svg.setAttribute("height", h);
		svg.setAttribute("viewBox", `0 0 ${gutter + width} ${h}`);
	}
}

function draw() {
	const g = document.createDocumentFragment();
	const defs = el(g, "defs", {});
	const hatch = el(defs, "pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
	el(hatch, "line", { x1: 0, x2: 0, y1: 0, y2: 6, class: "rule" });
	const clip = el(defs, "clipPath", { id: "inside" });
	el(clip, "rect", { x: gutter, y: 0, width, height: bottom + 1 });
	const inside = el(g, "g", { "clip-path": "url(#inside)" });
	const ticks = ruler();
	for (const t of ticks.at) el(inside, "line", { class: "grid", x1: round(X(t)), x2: round(X(t)), y1: 0, y2: bottom });
	if (current) {
		const f = data.findings[current - 1], x = X(f.from) - 2;
		el(inside, "rect", { class: "found", x: clipX(x), width: Math.max(0, clipX(X(f.to) + 2) - clipX(x)), y: 0, height: bottom });
	}
	for (const l of lanes) drawLane(inside, g, l);
	const wide = threshold();
	for (const t of tracks) drawTrack(inside, t, wide);
	drawLinks(inside);
	for (const l of lanes) drawMarks(inside, l);
	drawFindings(inside);
	if (chosen) {
		const { track: t, i } = chosen, x = clipX(X(t.start[i]));
		el(inside, "rect", { class: "chosen", x: x - 1.5, width: Math.max(4, clipX(X(t.end[i])) - x + 3), y: t.y - .5, height });
	}
	plot.replaceChildren(g);
	drawAxis(ticks);
	byId("where").textContent = `${seconds(view.from, ticks.digits + 1)} – ${seconds(view.to, ticks.digits + 1)} s  (${long(view.to - view.from)})`;
	const w = byId("window"), left = Math.max(0, view.from / data.end), right = Math.min(1, view.to / data.end);
	w.hidden = left === 0 && right === 1;
	w.style.left = 100 * left + "%";
	w.style.width = 100 * (right - left) + "%";
	placeTip();
}

function ruler() {
	const least = (view.to - view.from) * 95 / width;
	let step = Math.pow(10, Math.floor(Math.log10(least)));
	for (const by of [1, 2, 5, 10]) if (step * by >= least) { step *= by; break; }
	step = Math.max(1, step);
	const at = [];
	for (let n = Math.ceil(Math.max(0, view.from) / step); n * step <= Math.min(view.to, data.end); n++) at.push(n * step);
	return { at, digits: Math.min(6, Math.max(0, 6 - Math.floor(Math.log10(step) + 1e-9))) };
}

function drawAxis(ticks) {
	const g = document.createDocumentFragment();
	for (const t of ticks.at) {
		const x = X(t);
		if (x >= gutter - 1 && x <= gutter + width + 1) el(g, "text", { x: round(Math.min(Math.max(x, gutter + 8), gutter + width - 24)), y: 11 }, seconds(t, ticks.digits));
	}
	let last = -Infinity;
	// Findings that are too close share a flag, with the number of the one looked at.
	const flags = [];
	for (const i of byTime) {
		const x = X(data.findings[i].at), last = flags[flags.length - 1];
		if (x < gutter || x > gutter + width) continue;
		if (!last || x - last.x > 34) flags.push({ x, first: i, more: 0 });
		else { last.more++; if (i + 1 === current) { last.first = i; last.x = x; } }
	}
	for (const { x, first, more } of flags) {
		const text = more ? `${first + 1} +${more}` : String(first + 1), w = 8 + 6.3 * text.length;
		el(g, "rect", { class: "flag", x: round(x - w / 2), y: 14, width: w, height: 12, rx: 2 });
		el(g, "text", { class: "flagname", x: round(x), y: 23.5 }, text);
	}
	axis.replaceChildren(g);
}

function drawLane(g, outside, l) {
	el(outside, "text", { class: "lane", x: gutter - 10, y: l.y + strip + 12 }, "process " + l.process);
	const lives = l.lives.filter((s) => s.from <= view.to && s.to >= view.from).length;
	if (l.lives.length > 1 && l.height > 36) {
		const at = l.lives.findIndex((s) => s.to >= view.from) + 1;
		const text = lives > 1 ? `lives ${at}–${at + lives - 1}` : lives ? `life ${at}` : "not running";
		el(outside, "text", { class: "life", x: gutter - 10, y: l.y + strip + 25 }, text);
	}
	for (const s of l.gone) {
		if (s.to < view.from || s.from > view.to) continue;
		const x = clipX(X(s.from));
		el(g, "rect", { class: "gone", x: round(x), width: round(Math.max(1, clipX(X(s.to)) - x)), y: l.y, height: l.height });
	}
	let lastX = {};
	for (const f of l.faults) {
		if (f.to < view.from || f.from > view.to || f.what === "kill") continue;
		const x = clipX(X(f.from)), w = Math.max(1.5, clipX(X(f.to)) - x), c = faultClass(f.what);
		if (w <= 1.5 && x - lastX[c] < 1) continue; // drawn already
		lastX[c] = x;
		el(g, "rect", { class: "fault " + c, x: round(x), width: round(w), y: l.y, height: l.height });
		el(g, "rect", { class: "strip " + c, x: round(x), width: round(w), y: l.y, height: strip });
		const full = said(f), text = w > 5.7 * full.length + 6 ? full : f.what;
		if (w > 5.7 * text.length + 6) el(g, "text", { class: "fname", x: round(Math.max(x, gutter) + 3), y: l.y + 8 }, text);
	}
	el(g, "line", { class: "rule", x1: 0, x2: gutter + width, y1: l.y, y2: l.y });
}

// said is a fault in words; its note may begin with what it is.
function said(f) {
	return !f.text ? f.what : f.text.startsWith(f.what) ? f.text : `${f.what}: ${f.text}`;
}

function faultClass(what) {
	return ["kill", "pause", "late", "cut", "slow", "dark", "server"].includes(what) ? "f-" + what : "f-other";
}

// threshold is how wide a bar must be to be drawn by itself, so that there are
// few enough of them.
function threshold() {
	const widths = new Uint32Array(64); // by width, doubling each four
	const scale = width / (view.to - view.from);
	for (const t of tracks) {
		eachIn(t, view.from, view.to, (i) => {
			const w = (t.end[i] - t.start[i]) * scale;
			if (w >= 2) widths[Math.min(63, Math.floor(4 * Math.log2(w)))]++;
		});
	}
	let n = 0;
	for (let i = 63; i >= 4; i--) {
		n += widths[i];
		if (n > most) return Math.pow(2, (i + 1) / 4);
	}
	return 2;
}

function drawTrack(g, t, wide) {
	const columns = Math.ceil(width) + 1, kinds = 8; // and those of names that are aside
	const aside = names.map((n) => isAside(n) ? 4 : 0);
	const cover = new Float32Array(columns * kinds), waits = new Uint8Array(columns);
	const single = [], lost = [];
	let dense = false, lastLost = -Infinity;
	eachIn(t, view.from, view.to, (i) => {
		const n = names[t.name[i]], c = data.classes[t.cls[i]], kind = n.k + aside[t.name[i]];
		const x = X(t.start[i]) - gutter, end = X(t.end[i]) - gutter;
		const ask = X(t.ask[i]) - gutter;
		if (x - ask > .5) waits.fill(kind + 1, Math.max(0, Math.floor(ask)), Math.min(columns, Math.ceil(x)));
		if (!c[C.granted]) return;
		if (c[C.ended] === Lost && end >= 0 && end - lastLost > 2) lost.push(lastLost = end);
		if (end - x >= wide || c[C.finding]) { single.push(i); return; }
		dense = true;
		const to = Math.min(columns, Math.max(X(t.look[i]) - gutter, x + .35));
		for (let p = Math.max(0, Math.floor(x)); p < to; p++) cover[p * kinds + kind] += Math.min(to, p + 1) - Math.max(x, p);
	});
	drawRuns(g, columns, (p) => waits[p], (value, d) => el(g, "path", { class: `wait k${(value - 1) % 4}${value > 4 ? " aside" : ""}`, d }), t.y + height / 2 - 1, height > 6 ? 2 : 1);
	if (dense) {
		drawRuns(g, columns, (p) => {
			let k = 0, sum = 0;
			for (let i = 0; i < kinds; i++) {
				sum += cover[p * kinds + i];
				if (cover[p * kinds + i] > cover[p * kinds + k]) k = i;
			}
			return sum > .02 ? 1 + k * 3 + (sum < .4 ? 0 : sum < .75 ? 1 : 2) : 0;
		}, (value, d) => el(g, "path", { class: `dense k${Math.floor((value - 1) / 3) % 4} l${(value - 1) % 3}${value > 12 ? " aside" : ""}`, d }), t.y + 1, height - 2);
	}
	for (const i of single) drawBar(g, t, i);
	if (lost.length) {
		const s = crowded(lost) ? .5 : Math.max(2, Math.min(3.5, height / 3));
		el(g, "path", { class: "lost", d: lost.map((x) => `M${round(gutter + x - s)} ${t.y + .5}h${2 * s}l${-s} ${s < 1 ? 4 : 1.6 * s}z`).join("") });
	}
}

// crowded is whether signs at so many places would hide what they stand beside: then they are
// ticks.
const crowded = (places) => places.length > width / 14;

// drawRuns draws columns of the same value as one rectangle, and all of a value as one path.
function drawRuns(g, columns, value, emit, y, h) {
	const paths = new Map();
	for (let p = 0; p < columns;) {
		const v = value(p), from = p;
		while (p < columns && value(p) === v) p++;
		if (v) paths.set(v, (paths.get(v) || "") + `M${gutter + from} ${y}h${p - from}v${h}h${from - p}z`);
	}
	for (const [v, d] of paths) emit(v, d);
}

function drawBar(g, t, i) {
	const n = names[t.name[i]], c = data.classes[t.cls[i]];
	const x = clipX(X(t.start[i])), look = clipX(X(t.look[i])), end = clipX(X(t.end[i]));
	// A share of the units is a lower bar: readers, and few permits of many.
	const part = c[C.limit] > 0 && c[C.units] < c[C.limit] ? Math.max(.65, c[C.units] / c[C.limit]) : 1;
	const h = (height - 2) * part, y = t.y + 1 + (height - 2 - h);
	const color = `k${n.k} s${n.shade}${isAside(n) ? " aside" : ""}`;
	if (end > look) el(g, "rect", { class: "tail " + color, x: round(look), width: round(end - look), y: round(y + h / 4), height: round(h / 2) });
	el(g, "rect", { class: `bar ${color}${c[C.finding] ? " shown" : ""}`, x: round(x), width: round(Math.max(look - x, 1)), y: round(y), height: round(h) });
	const from = Math.max(x, gutter), room = Math.floor((Math.min(end, gutter + width) - from - 5) / 6.05);
	if (h < 9 || room < 3 || isAside(n)) return;
	const text = [`${n.label} ${tokenOf(t, i)}`, `${n.label} ${shortToken(t, i)}`, n.label, shortToken(t, i)].find((s) => s.length <= room);
	if (text) el(g, "text", { class: "name", x: round(from + 3), y: round(y + h / 2 + 3.5) }, text);
}

function tokenOf(t, i) {
	return BigInt(names[t.name[i]].base) + BigInt(t.token[i]);
}

// shortToken is the end of a token: some stores begin theirs with the time.
function shortToken(t, i) {
	const token = String(tokenOf(t, i));
	return token.length > 7 ? "…" + token.slice(-5) : token;
}

function drawLinks(g) {
	let links = (data.links || []).filter(([, , from, , , to]) => from <= view.to && to >= view.from);
	if (links.length > 150) links = links.filter(([, , from, , , to]) => from >= view.from || to <= view.to);
	const each = Math.max(1, Math.ceil(links.length / 600));
	g = el(g, "g", { opacity: round(Math.min(.7, Math.max(.2, 25 / links.length)) * (current ? .4 : 1)) });
	for (let i = 0; i < links.length; i += each) {
		const [lane, track, from, toLane, toTrack, to] = links[i];
		const a = lanes[lane].tracks[track], b = lanes[toLane].tracks[toTrack];
		const x1 = X(from), x2 = X(to), y1 = a.y + height / 2, y2 = b.y + height / 2, bend = Math.max(6, (x2 - x1) / 2);
		el(g, "path", { class: "link", d: `M${round(x1)} ${y1}C${round(x1 + bend)} ${y1} ${round(x2 - bend)} ${y2} ${round(x2)} ${y2}` });
		el(g, "circle", { class: "linkend", cx: round(x2), cy: y2, r: 2 });
	}
}

function drawMarks(g, l) {
	let last = -Infinity, d = "";
	for (const f of l.faults) {
		const x = X(f.from);
		if (f.what !== "kill" || x < gutter || x > gutter + width || x - last < 1) continue;
		last = x;
		d += `M${round(x)} ${l.y}V${l.y + l.height}M${round(x - 3.5)} ${l.y + 1.5}l7 7m-7 0l7 -7`;
	}
	if (d) el(g, "path", { class: "kill", d });
	const y = l.y + l.height - 2;
	const signs = { limit: (x) => `M${x - 3} ${y}h6l-3 -5z`, force: (x) => `M${x} ${y - 7}v7m-3 -3.5l3 3.5l3 -3.5`, ended: (x) => `M${x - 3} ${l.y + 2}h6v6h-6z` };
	for (const what in signs) {
		const places = [];
		for (const m of l.marks) {
			const x = X(m.from);
			if (m.what === what && x >= gutter && x <= gutter + width && !(x - places[places.length - 1] < 2)) places.push(round(x));
		}
		const sign = crowded(places) ? (x) => `M${x} ${y}v-4` : signs[what];
		if (places.length) el(g, "path", { class: what === "force" || crowded(places) ? "mark" : "mark full", d: places.map(sign).join("") });
	}
}

function drawFindings(g) {
	let last = -Infinity;
	data.findings.forEach((f, i) => {
		const x = X(f.at);
		if (x < gutter - 2 || x > gutter + width + 2 || Math.abs(x - last) < 2 && i + 1 !== current) return;
		last = x;
		el(g, "line", { class: i + 1 === current ? "finding now" : "finding", x1: round(x), x2: round(x), y1: 0, y2: bottom });
	});
}
