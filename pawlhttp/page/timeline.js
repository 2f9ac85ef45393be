import { clock, element, person, span } from './text.js';

const most = 20; // claims
const longest = 3600e3;

// bars are the claims of a name, in order of arrival. Times are in milliseconds ago.
export function bars(queue, happened) {
  const all = new Map();
  const of = (id, c) => {
    if (!all.has(id)) all.set(id, { who: person(c) });
    return all.get(id);
  };
  for (const c of queue.holders) Object.assign(of(c.id, c), { came: c.age_ms, granted: c.held_ms || 0, ended: 0 });
  for (const c of queue.waiters) Object.assign(of(c.id, c), { came: c.age_ms, ended: 0 });
  for (const h of happened) { // the newest first
    const b = of(h.claim, h);
    if (h.what === 'waiting') {
      b.came = h.ago_ms;
    } else if (h.what === 'granted') {
      b.granted = h.ago_ms;
      b.came ??= h.ago_ms + h.age_ms;
    } else {
      b.ended ??= h.ago_ms;
      b.came ??= h.ago_ms + h.age_ms;
      if (h.what !== 'left') b.granted ??= h.ago_ms + (h.held_ms || 0);
      b.lost ||= h.what === 'lost' || h.what === 'forced';
    }
  }
  return [...all.values()].filter((b) => b.ended !== undefined && b.ended < longest).sort((a, b) => b.came - a.came).slice(-most);
}

// draw shows them.
export function draw(root, queue, happened) {
  const all = bars(queue, happened);
  const width = Math.min(longest, Math.max(60e3, ...all.map((b) => b.came)));
  const axis = element('div', '', element('span', clock(width)), element('span', `${span(width / 2)} ago`), element('span', 'now'));
  axis.className = 'axis';
  root.replaceChildren(...all.map((b) => track(b, width)), axis);
  root.setAttribute('aria-label', `Time line of the last ${span(width)}: ${all.length} claims. The table of events says the same.`);
}

function track(b, width) {
  const room = element('div');
  room.className = 'room';
  const add = (from, to, kind) => {
    const left = Math.min(from, width);
    if (to >= width || kind === 'waiting' && from <= to) return;
    const bar = element('span');
    bar.className = `bar ${kind}`;
    bar.style.left = `${100 - left / width * 100}%`;
    bar.style.width = `${Math.max(0, left - to) / width * 100}%`;
    bar.title = `${kind === 'waiting' ? 'waited' : 'held'} ${span(from - to)}`;
    room.append(bar);
  };
  add(b.came, b.granted ?? b.ended, 'waiting');
  if (b.granted !== undefined) add(b.granted, b.ended, b.lost ? 'lost' : 'holding');
  const who = element('span', b.who);
  who.className = 'who';
  who.title = b.who;
  const row = element('div', '', who, room);
  row.className = 'track';
  return row;
}
