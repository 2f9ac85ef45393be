// What is shown of numbers and people. All of it goes into the page as text.

// span says how long some milliseconds are.
export function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${pad(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ${pad(Math.floor(s / 60) % 60)}m`;
  return `${Math.floor(s / 86400)}d ${Math.floor(s / 3600) % 24}h`;
}

function pad(n) { return String(n).padStart(2, '0'); }

// clock is the time of day that was so many milliseconds ago.
export function clock(ago) {
  const t = new Date(Date.now() - ago);
  const time = `${pad(t.getHours())}:${pad(t.getMinutes())}:${pad(t.getSeconds())}`;
  return ago < 43200e3 ? time : `${t.getFullYear()}-${pad(t.getMonth() + 1)}-${pad(t.getDate())} ${time}`;
}

// place is where a claim's owner runs.
export function place(c) {
  if (!c.host && !c.pid) return '';
  return (c.host || '') + (c.pid ? ` (pid ${c.pid})` : '');
}

// person is a claim's owner in a sentence.
export function person(c) {
  return [c.label || 'no label', place(c) && `on ${place(c)}`].filter(Boolean).join(' ');
}

export function number(n) { return n.toLocaleString('en'); }

// element makes an element with text, and children.
export function element(tag, text, ...children) {
  const e = document.createElement(tag);
  if (text) e.textContent = text;
  e.append(...children);
  return e;
}

// set changes a text if it is another, so that nothing moves that need not.
export function set(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// link leads to a name. The direction of its letters stays its own.
export function link(name) {
  const a = element('a', '', element('bdi', name));
  a.href = address(name);
  a.title = name;
  return a;
}

export function address(name) { return '#/' + encodeURIComponent(name); }
