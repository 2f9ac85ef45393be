import { get } from './api.js';
import { fill, head } from './table.js';
import { clock, element, link, number, person, place, set, span } from './text.js';

const $ = (id) => document.getElementById(id);
const page = 100; // names at a time
const state = { search: '', order: 'held', reverse: false, offset: 0 };

const columns = [
  { title: 'Name', order: 'name', show: showName },
  { title: 'Kind', order: 'kind', text: (n) => (n.kind || '') + (n.kind === 'semaphore' ? ` of ${number(n.limit)}` : '') },
  { title: 'Holder', order: 'holder', text: (n) => n.holder ? n.holder.label || '–' : '' },
  { title: 'Host', text: (n) => (n.holder ? place(n.holder) : '') + (n.holders > 1 ? ` and ${number(n.holders - 1)} more` : '') },
  { title: 'Token', kind: 'number', text: (n) => n.holder && n.holder.token ? String(n.holder.token) : '' },
  { title: 'Held for', order: 'held', kind: 'span', text: (n) => n.holder ? span(n.holder.held_ms || 0) : '' },
  { title: 'TTL left', order: 'ttl', kind: 'span', text: (n) => n.holder ? span(n.holder.ttl_ms) + (n.holder.lingering ? ', lingers' : '') : '' },
  { title: 'Waiters', order: 'waiters', kind: 'number', text: (n) => n.waiters ? number(n.waiters) : '' },
  { title: 'Oldest wait', order: 'waited', kind: 'span', text: (n) => n.waiters ? span(n.oldest_wait_ms || 0) : '' },
];

function showName(td, n) {
  if (!td.firstChild) td.append(link(n.name)); // a row is always of one name
}

// begin sets the controls up; changed is called when something else is to be shown.
export function begin(changed) {
  head($('names'), columns, (order) => {
    state.reverse = order === state.order && !state.reverse;
    state.order = order;
    restart();
  });
  for (const c of columns) {
    if (!c.order) continue;
    const o = element('option', c.title);
    o.value = c.order;
    $('order').append(o);
  }
  const restart = () => { state.offset = 0; controls(); changed(); };
  let typing;
  $('search').addEventListener('input', () => {
    clearTimeout(typing);
    typing = setTimeout(() => { state.search = $('search').value.trim(); restart(); }, 150);
  });
  $('find').addEventListener('submit', (e) => e.preventDefault());
  $('order').addEventListener('change', () => { state.order = $('order').value; state.reverse = false; restart(); });
  $('reverse').addEventListener('click', () => { state.reverse = !state.reverse; restart(); });
  $('previous').addEventListener('click', () => { state.offset = Math.max(0, state.offset - page); changed(); });
  $('next').addEventListener('click', () => { state.offset += page; changed(); });
  $('names').addEventListener('keydown', move);
  controls();
}

// move goes up and down by the arrow keys.
function move(e) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
  const links = [...$('names').querySelectorAll('tbody a')];
  const at = links.indexOf(document.activeElement);
  const to = links[at + step];
  if (!step || at < 0 || !to) return;
  e.preventDefault();
  to.focus();
}

function controls() {
  $('order').value = state.order;
  $('reverse').setAttribute('aria-pressed', String(state.reverse));
  for (const th of $('names').tHead.rows[0].cells) {
    if (th.dataset.order === state.order) th.setAttribute('aria-sort', state.reverse ? 'ascending' : 'descending');
    else th.removeAttribute('aria-sort');
  }
}

// refresh shows the names as they are now.
export async function refresh(signal) {
  const r = await get('names', { ...state, limit: page }, signal);
  if (r.matching > 0 && state.offset >= r.matching) { // they have gone meanwhile
    state.offset = Math.floor((r.matching - 1) / page) * page;
    return refresh(signal);
  }
  set($('counts'), `${number(r.total)} names, ${number(r.held)} held, ${number(r.waiting)} waiting`);
  top($('top-held'), r.longest_held, (n) => `${span(n.holder.held_ms || 0)}, ${n.holder.label || place(n.holder)}`, 'Nothing is held.');
  top($('top-waited'), r.longest_waited, (n) => `${span(n.oldest_wait_ms || 0)}, ${number(n.waiters)} waiting`, 'Nobody waits.');
  top($('notable'), r.notable.slice(0, 5), (h) => `${h.what} ${clock(h.ago_ms)}, ${h.label || place(h)}`, `None in ${span(r.watched_ms)}.`, true);
  fill($('names'), columns, r.names, (n) => n.name);
  $('none').hidden = r.names.length > 0;
  set($('none'), r.total ? 'No name has that.' : 'Nothing is held, and nobody waits.');
  const last = Math.min(state.offset + page, r.matching);
  set($('range'), r.matching ? `${number(state.offset + 1)} to ${number(last)} of ${number(r.matching)}` : '');
  $('previous').disabled = state.offset === 0;
  $('next').disabled = last >= r.matching;
  return r;
}

// top shows what stands out.
function top(list, items, text, none, alarm) {
  const focused = list.contains(document.activeElement) ? document.activeElement.title : null;
  if (!items.length) {
    list.replaceChildren(element('li', none));
    return;
  }
  list.replaceChildren(...items.map((item) => {
    const what = element('span', text(item));
    if (alarm) what.classList.add('alarm');
    what.title = item.holder ? person(item.holder) : alarm ? person(item) + (item.by ? `, by ${item.by}` : '') : '';
    return element('li', '', link(item.name), what);
  }));
  if (focused !== null) [...list.querySelectorAll('a')].find((a) => a.title === focused)?.focus({ preventScroll: true });
}
