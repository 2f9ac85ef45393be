// Hands on the drawing: zoom, pan, filters, and what is said about the thing pointed at.
const tip = byId("tip");
let pinned = false, tipAt = [0, 0];

// under finds what is drawn at a place: the bar, the fault, the mark.
function under(x, y) {
	if (x < gutter) return null;
	const l = lanes.find((l) => y >= l.y && y < l.y + l.height);
	if (!l) return null;
	const time = T(x), near = (view.to - view.from) / width * 4;
	if (y >= l.y + strip) {
		const t = l.tracks.find((t) => y >= t.y && y < t.y + height);
		const bar = t && nearest(t, time, near);
		if (bar) return bar;
	}
	const things = l.faults.filter((f) => f.from <= time + near && f.to >= time - near);
	const marks = l.marks.filter((m) => m.from <= time + near && m.to >= time - near);
	if (things.length + marks.length) return { lane: l, things: marks.concat(things) };
	const gone = l.gone.find((s) => s.from <= time && s.to >= time);
	return gone ? { lane: l, gone } : null;
}

function nearest(t, time, near) {
	let best = null, least = Infinity, granted = 0;
	eachIn(t, time - near, time + near, (i) => {
		if (!data.classes[t.cls[i]][C.granted]) granted--;
		granted++;
		// To be in a bar is best, in its wait next, beside it last.
		const d = time >= t.start[i] && time <= t.end[i] ? 0 : time < t.start[i] && time >= t.ask[i] ? near : near + Math.min(Math.abs(time - t.start[i]), Math.abs(time - t.end[i]), Math.abs(time - t.ask[i]));
		if (d < least) { least = d; best = i; }
	});
	return best === null ? null : { track: t, i: best, granted };
}

// about says a thing in words: a heading and lines of two.
function about(hit) {
	if (hit.track) return aboutBar(hit.track, hit.i, hit.granted);
	const head = "process " + hit.lane.process, lines = [];
	if (hit.gone) lines.push(["not running", `${seconds(hit.gone.from, 3)} – ${seconds(hit.gone.to, 3)} s`]);
	for (const f of (hit.things || []).slice(0, 6)) {
		const when = f.to > f.from ? `${seconds(f.from, 3)} – ${seconds(f.to, 3)} s, ${long(f.to - f.from)}` : seconds(f.from, 3) + " s";
		lines.push([f.what, when]);
		if (f.text) lines.push(["", f.text]);
	}
	if ((hit.things || []).length > 6) lines.push(["", `and ${hit.things.length - 6} more`]);
	return { head, lines };
}

function aboutBar(t, i, granted) {
	const n = names[t.name[i]], c = data.classes[t.cls[i]], l = lanes[t.lane];
	const lines = [["process", l.process + (c[C.life] > 1 ? `, life ${c[C.life]}` : "")]];
	let kind = n.kind;
	if (n.kind === "rw") kind = c[C.units] < c[C.limit] ? "rw, reader" : "rw, writer";
	else if (c[C.limit] > 1) kind += `, ${c[C.units]} of ${c[C.limit]}`;
	lines.push(["kind", kind]);
	if (data.texts[c[C.way]]) lines.push(["by", data.texts[c[C.way]]]);
	if (!c[C.granted]) {
		lines.push(["asked", seconds(t.ask[i]) + " s"], [data.ends[c[C.ended]], `${seconds(t.end[i])} s, after ${long(t.end[i] - t.ask[i])}`]);
	} else {
		lines.push(["token", String(tokenOf(t, i))]);
		if (t.start[i] > t.ask[i]) lines.push(["asked", `${seconds(t.ask[i])} s, waited ${long(t.start[i] - t.ask[i])}`]);
		lines.push(["granted", seconds(t.start[i]) + " s"], ["last look", `${seconds(t.look[i])} s, believed for ${long(t.look[i] - t.start[i])}`]);
		if (t.deadline[i]) lines.push(["deadline", `${seconds(t.look[i] + t.deadline[i] * 1000, 3)} s`]);
		lines.push([data.ends[c[C.ended]], `${seconds(t.end[i])} s, ${long(t.end[i] - t.look[i])} later`]);
		if (c[C.writes]) lines.push(["writes", c[C.refused] ? `${c[C.writes]}, ${c[C.refused]} refused by the fence` : c[C.writes]]);
	}
	if (data.texts[c[C.err]]) lines.push(["error", data.texts[c[C.err]]]);
	if (c[C.finding]) lines.push(["finding", `${c[C.finding]}, ${data.findings[c[C.finding] - 1].rule}`]);
	if (granted > 3) lines.push(["", `one of ${granted} here; closer shows each`]);
	return { head: n.name, lines, name: n.name };
}

function showTip(hit, pin) {
	if (!hit) { hideTip(); return; }
	const { head, lines, name } = about(hit);
	const h = document.createElement("h3"), table = document.createElement("table");
	h.textContent = head;
	for (const [a, b] of lines) {
		const row = table.insertRow(), th = document.createElement("th");
		th.textContent = a;
		row.appendChild(th);
		row.insertCell().textContent = b;
	}
	tip.replaceChildren(h, table);
	if (pin) {
		if (name) {
			const only = document.createElement("button");
			only.textContent = query === name ? "all names" : "only this name";
			only.onclick = () => { setQuery(query === name ? "" : name); hideTip(); };
			tip.appendChild(only);
		}
		byId("said").textContent = [head].concat(lines.map((p) => p.join(" "))).join("; ");
	}
	pinned = !!pin;
	tip.classList.toggle("pinned", pinned);
	tip.hidden = false;
	if (hit.track && pin) chosen = { track: hit.track, i: hit.i };
}

function hideTip() {
	pinned = false;
	tip.hidden = true;
	tip.classList.remove("pinned");
	if (chosen) { chosen = null; redraw(); }
}

// letGo lets go of what is chosen, and then of the finding.
function letGo() {
	if (tip.hidden) current = 0;
	if (byId("which")) byId("which").textContent = current || "–";
	hideTip();
	redraw();
}

function placeTip() {
	if (tip.hidden) return;
	if (chosen) {
		const x = X(chosen.track.start[chosen.i]);
		tipAt = [Math.min(Math.max(x, gutter), gutter + width), chosen.track.y + height + 26];
	}
	const w = tip.offsetWidth, h = tip.offsetHeight, all = gutter + width;
	const x = tipAt[0] + 14 + w > all ? Math.max(0, tipAt[0] - w - 14) : tipAt[0] + 14;
	const box = chart.getBoundingClientRect();
	let y = tipAt[1] + 14;
	if (box.top + y + h > innerHeight) y = Math.max(-box.top, tipAt[1] - h - (chosen ? height + 12 : 12));
	tip.style.left = x + "px";
	tip.style.top = y + "px";
}

function setQuery(text) {
	query = text;
	byId("name").value = text;
	filter();
}

function place(e) {
	const box = chart.getBoundingClientRect();
	return [e.clientX - box.left, e.clientY - box.top - axis.clientHeight];
}

// Pointers: one drags, two pinch.
const pointers = new Map();
let dragged = 0;
chart.addEventListener("pointerdown", (e) => {
	if (e.button !== 0 || tip.contains(e.target)) return;
	pointers.set(e.pointerId, e.clientX);
	if (pointers.size === 1) dragged = 0;
	chart.setPointerCapture(e.pointerId);
});
chart.addEventListener("pointermove", (e) => {
	if (!pointers.has(e.pointerId)) {
		if (pinned || tip.contains(e.target)) return;
		const [x, y] = place(e);
		tipAt = [x, y + axis.clientHeight];
		showTip(under(x, y));
		placeTip();
		return;
	}
	const before = [...pointers.values()], was = pointers.get(e.pointerId);
	pointers.set(e.pointerId, e.clientX);
	dragged += Math.abs(e.clientX - was);
	if (pointers.size === 1 && dragged > 3) {
		if (!pinned) hideTip();
		move((was - e.clientX) / width);
	}
	if (pointers.size === 2) {
		const now = [...pointers.values()], left = chart.getBoundingClientRect().left;
		const apart = (p) => Math.max(10, Math.abs(p[0] - p[1]));
		zoom(apart(before) / apart(now), T((now[0] + now[1]) / 2 - left));
	}
});
for (const kind of ["pointerup", "pointercancel"]) {
	chart.addEventListener(kind, (e) => {
		if (!pointers.delete(e.pointerId) || dragged > 3 || kind === "pointercancel") return;
		const [x, y] = place(e), hit = under(x, y);
		hideTip();
		tipAt = [x, y + axis.clientHeight];
		showTip(hit, true);
		redraw();
	});
}
chart.addEventListener("pointerleave", () => { if (!pinned) hideTip(); });
chart.addEventListener("dblclick", (e) => { if (!tip.contains(e.target)) zoom(.25, T(place(e)[0])); });

// A wheel that scrolls the page goes on doing so when the time line comes under it.
let scrolledAt = -Infinity;
addEventListener("wheel", (e) => { if (!chart.contains(e.target)) scrolledAt = e.timeStamp; }, { passive: true });
chart.addEventListener("wheel", (e) => {
	const still = e.timeStamp - scrolledAt < 300 && !e.ctrlKey;
	if (still) { scrolledAt = e.timeStamp; return; }
	e.preventDefault();
	const unit = e.deltaMode === 1 ? 16 : e.deltaMode === 2 ? 400 : 1;
	if (Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey) {
		move(unit * (e.deltaX || e.deltaY) / width);
	} else {
		zoom(Math.exp(unit * Math.min(240, Math.max(-240, e.deltaY)) * (e.ctrlKey ? .01 : .0025)), T(place(e)[0]));
	}
	if (!pinned) hideTip();
}, { passive: false });

// Keys.
const keys = {
	ArrowLeft: () => move(-.2), ArrowRight: () => move(.2), "+": () => zoom(.6), "=": () => zoom(.6), "-": () => zoom(1 / .6),
	0: everything, Home: () => move(-1e9), End: () => move(1e9), Escape: letGo, n: () => jump(current + 1), p: () => jump(current - 1),
};
chart.addEventListener("keydown", (e) => {
	if (e.ctrlKey || e.metaKey || e.altKey || e.target !== chart) return;
	if (e.shiftKey && e.key.startsWith("Arrow")) choose(e.key);
	else if (keys[e.key]) keys[e.key]();
	else return;
	e.preventDefault();
});

// choose goes from the chosen bar to the one beside it.
function choose(key) {
	const from = chosen || { track: tracks.find((t) => t.count), i: -1 };
	if (!from.track) return;
	let hit = null;
	if (!chosen) {
		eachIn(from.track, view.from, view.to, (i) => { if (!hit) hit = { track: from.track, i }; });
	} else if (key === "ArrowLeft" || key === "ArrowRight") {
		const step = key === "ArrowLeft" ? -1 : 1;
		let i = from.i + step;
		while (i >= 0 && i < from.track.count && !shown[from.track.name[i]]) i += step;
		if (i >= 0 && i < from.track.count) hit = { track: from.track, i };
	} else {
		const step = key === "ArrowUp" ? -1 : 1, time = from.track.start[from.i];
		for (let at = tracks.indexOf(from.track) + step; at >= 0 && at < tracks.length && !hit; at += step) {
			hit = nearest(tracks[at], time, (view.to - view.from) / 2);
		}
	}
	if (!hit) return;
	showTip({ track: hit.track, i: hit.i }, true);
	const { track: t, i } = chosen, span = view.to - view.from;
	if (t.start[i] < view.from || t.start[i] > view.to) look(t.start[i] - span / 2, t.start[i] + span / 2);
	redraw();
}

// jump shows a finding: the time of its events, as far as they are near, and as much around.
function jump(number) {
	if (!data.findings.length) return;
	current = number < 1 ? data.findings.length : number > data.findings.length ? 1 : number;
	const f = data.findings[current - 1], far = 1e6;
	const from = Math.max(f.from, f.at - far), to = Math.min(f.to, f.at + far), span = Math.max(to - from, 20e3);
	hideTip();
	look(from - span * .3, to + span * .3);
	byId("which").textContent = current;
	byId("said").textContent = `finding ${current}, ${f.rule}, ${f.name}, at ${seconds(f.at, 3)} seconds`;
}

function follow() {
	const m = /^#mark-(\d+)$/.exec(location.hash);
	if (!m) return;
	jump(Number(m[1]));
	byId("tools").scrollIntoView({ block: "start" });
	chart.focus({ preventScroll: true });
}
addEventListener("hashchange", follow);
addEventListener("click", (e) => {
	const a = e.target.closest && e.target.closest('a[href^="#mark-"]');
	if (!a) return;
	e.preventDefault();
	history.replaceState(null, "", a.getAttribute("href"));
	follow();
});

// The overview: a drag in the window moves it, one beside it makes another.
{
	const whole = byId("whole"), frame = byId("window");
	let began = null;
	const time = (e) => {
		const box = whole.getBoundingClientRect();
		return (e.clientX - box.left) / box.width * data.end;
	};
	whole.addEventListener("pointerdown", (e) => {
		if (e.button !== 0) return;
		began = { at: time(e), from: view.from, to: view.to, moves: e.target === frame, x: e.clientX };
		whole.setPointerCapture(e.pointerId);
		e.preventDefault();
	});
	whole.addEventListener("pointermove", (e) => {
		if (!began || Math.abs(e.clientX - began.x) < 4) return;
		const now = time(e);
		if (began.moves) look(began.from + now - began.at, began.to + now - began.at);
		else look(Math.min(began.at, now), Math.max(began.at, now));
	});
	whole.addEventListener("pointerup", (e) => {
		if (began && Math.abs(e.clientX - began.x) < 4) {
			const span = Math.min(view.to - view.from, data.end / 20);
			look(began.at - span / 2, began.at + span / 2);
		}
		began = null;
	});
}

// What is said around the drawing.
function furnish() {
	for (const id of ["tools", "chart", "legend", "keys"]) byId(id).hidden = false;
	const act = { left: () => move(-.5), right: () => move(.5), in: () => zoom(.5), out: () => zoom(2), all: everything, previous: () => jump(current - 1), next: () => jump(current + 1) };
	for (const id in act) if (byId(id)) byId(id).onclick = act[id];
	const swatch = (parent, w, shapes) => {
		const s = el(parent, "svg", { width: w, height: 12, "aria-hidden": "true" });
		for (const [tag, attributes] of shapes) el(s, tag, attributes);
	};
	[...kindNames, "other"].forEach((kind, k) => {
		if (!names.some((n) => n.k === k)) return;
		const label = document.createElement("label"), box = document.createElement("input");
		label.className = "kind";
		box.type = "checkbox";
		box.checked = true;
		box.onchange = () => { kindShown[k] = box.checked; filter(); };
		label.append(box);
		swatch(label, 14, [["rect", { class: `swatch k${k}`, x: 0, y: 1, width: 14, height: 10 }]]);
		label.append(kind);
		byId("kinds").append(label);
	});
	byId("name").oninput = (e) => { query = e.target.value; filter(); };
	for (const n of [...new Set(names.map((n) => n.name))].sort().slice(0, 2000)) byId("names").append(new Option(n, n));
	const legend = byId("legend"), entry = (text, w, shapes) => {
		const s = document.createElement("span");
		swatch(s, w, shapes);
		s.append(text);
		legend.append(s);
	};
	entry("waits, believes, not known until told or gone", 44, [["rect", { class: "wait k0", x: 0, y: 5, width: 10, height: 2 }], ["rect", { class: "bar k0 s0", x: 10, y: 1, width: 20, height: 10 }], ["rect", { class: "tail k0 s0", x: 30, y: 3.5, width: 14, height: 5 }]]);
	if (names.some((n) => n.k === 1 || n.k === 2)) entry("lower: a reader, or few permits", 16, [["rect", { class: "bar k1 s0", x: 0, y: 6, width: 16, height: 5 }]]);
	entry("lease lost", 10, [["path", { class: "lost", d: "M1 2h8l-4 7z" }]]);
	if ((data.links || []).length) entry("hand-over", 24, [["path", { class: "link", d: "M0 2C10 2 12 10 21 10" }], ["circle", { class: "linkend", cx: 21, cy: 10, r: 2 }]]);
	const marks = new Set(lanes.flatMap((l) => l.marks.map((m) => m.what)));
	if (marks.has("force")) entry("released by force", 10, [["path", { class: "mark", d: "M5 0V11M2 7l3 4l3 -4" }]]);
	if (marks.has("limit")) entry("limit changed", 10, [["path", { class: "mark full", d: "M2 9h6l-3 -5z" }]]);
	if (marks.has("ended")) entry("ended by itself, badly", 10, [["path", { class: "mark full", d: "M2 3h6v6h-6z" }]]);
	for (const what of new Set(lanes.flatMap((l) => l.faults.map((f) => f.what)))) {
		if (what === "kill") entry("killed, then not running", 26, [["path", { class: "kill", d: "M5 0V12M1.5 1.5l7 7m-7 0l7 -7" }], ["rect", { class: "gone", x: 9, y: 0, width: 16, height: 12 }]]);
		else entry(what, 14, [["rect", { class: "fault " + faultClass(what), x: 0, y: 0, width: 14, height: 12 }], ["rect", { class: "strip " + faultClass(what), x: 0, y: 0, width: 14, height: 5 }]]);
	}
}

furnish();
measure();
view.from = -data.end * .004;
view.to = data.end * 1.004;
addEventListener("resize", () => { measure(); redraw(); });
draw();
follow();
