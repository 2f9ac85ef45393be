import { act, get } from './api.js';
import { ask } from './confirm.js';
import { fill, head } from './table.js';
import { clock, element, number, person, place, set, span } from './text.js';
import { draw } from './timeline.js';

const $ = (id) => document.getElementById(id);
let shown = null; // the name, and its queue when it was read last
let rights = { actions: false, admin: [] };

const who = [
  { title: 'Label', text: (c) => c.label || '–' },
  { title: 'Host', text: place },
];
const claim = [
  { title: 'TTL left', kind: 'span', text: (c) => span(c.ttl_ms) + (c.lingering ? ', lingers' : '') },
  { title: 'Units', kind: 'number', text: (c) => number(c.units) },
  { title: 'Claim', text: (c) => c.id },
];
const holders = [...who,
  { title: 'Token', kind: 'number', text: (c) => c.token ? String(c.token) : '' },
  { title: 'Held for', kind: 'span', text: (c) => span(c.held_ms || 0) }, ...claim];
const waiters = [...who,
  { title: 'Place', kind: 'number', text: (c) => number(c.place) },
  { title: 'Waits for', kind: 'span', text: (c) => span(c.age_ms) }, ...claim];
const events = [
  { title: 'When', kind: 'span', text: (h) => h.within_ms > 5000 ? `${clock(h.ago_ms + h.within_ms)} to ${clock(h.ago_ms)}` : clock(h.ago_ms) },
  { title: 'What', show: showWhat },
  { title: 'Who', text: person },
  { title: 'Token', kind: 'number', text: (h) => h.token ? String(h.token) : '' },
  { title: 'Claim', text: (h) => h.claim },
];

const words = { waiting: 'waits', granted: 'holds', left: 'left the queue', ended: 'ended', lost: 'lost: its time ran out', forced: 'forced' };

function showWhat(td, h) {
  let text = words[h.what];
  if (h.held_ms) text += `, after ${span(h.held_ms)}`;
  if (h.by) text += `, by ${h.by}`;
  set(td, text);
  td.classList.toggle('alarm', h.what === 'lost' || h.what === 'forced');
}

export function begin(changed) {
  head($('holders'), holders);
  head($('queue'), waiters);
  head($('events'), events);
  const on = (id, f) => $(id).addEventListener('click', async () => { await f(); changed(); });
  on('force', force);
  on('yield', giveWay);
  on('limit', setLimit);
}

// allow says what the caller may do.
export function allow(r) { rights = r; }

function admin(name) {
  return rights.actions && rights.admin.some((p) => p.endsWith('*') ? name.startsWith(p.slice(0, -1)) : p === name);
}

// open shows another name.
export function open(name) {
  shown = { name, queue: null };
  $('name').replaceChildren(element('bdi', name));
  for (const id of ['about', 'watched']) set($(id), '');
  for (const id of ['holders', 'queue', 'events']) fill($(id), [], [], () => '');
  $('line').replaceChildren();
  buttons();
}

function buttons() {
  const q = shown.queue;
  const may = admin(shown.name);
  for (const id of ['force', 'yield', 'limit']) $(id).hidden = !may;
  $('force').disabled = $('yield').disabled = !q || !q.holders.length;
  $('limit').disabled = !q || q.kind !== 'semaphore';
  set($('why'), may ? '' : rights.actions ? 'You may look, and not act: that needs the right admin.' : 'Actions are off: they need pawl serve --allow-actions.');
}

// refresh shows the name as it is now.
export async function refresh(signal) {
  const name = shown.name;
  const [q, past] = await Promise.all([get('inspect', { name }, signal), get('history', { name }, signal)]);
  if (shown.name !== name) return;
  shown.queue = q;
  buttons();
  const limit = q.kind === 'semaphore' ? ` of ${number(q.limit)}` + (q.declared ? ` (its users give ${number(q.declared)})` : '') : '';
  set($('about'), q.kind ? `${q.kind}${limit}, ${number(q.holders.length)} holding, ${number(q.waiters.length)} waiting` : 'It is free.');
  q.waiters.forEach((c, i) => { c.place = i + 1; });
  const most = 200; // rows
  fill($('holders'), holders, q.holders.slice(0, most), (c) => c.id);
  fill($('queue'), waiters, q.waiters.slice(0, most), (c) => c.id);
  set($('queue-title'), q.waiters.length > most ? `Queue (the first ${most} of ${number(q.waiters.length)})` : 'Queue');
  set($('holders-title'), q.holders.length > most ? `Holders (the first ${most} of ${number(q.holders.length)})` : 'Holders');
  $('free').hidden = q.holders.length > 0;
  $('idle').hidden = q.waiters.length > 0;
  draw($('line'), q, past.happened);
  set($('watched'), past.happened.length ? '' : `Nothing has changed in the ${span(past.watched_ms)} that this server has watched it.`);
  fill($('events'), events, past.happened.slice(0, 50), (h) => `${h.what} ${h.claim} ${h.token || ''}`);
}

// told says how an action went.
async function told(doing, text) {
  try {
    set($('done'), text(await doing));
  } catch (e) {
    set($('done'), `Not done: ${e.message}`);
  }
}

// people lists the holders for a confirmation.
function people(q) {
  const most = 10;
  const list = element('ul', '', ...q.holders.slice(0, most).map((c) => element('li', '', element('bdi', person(c)), `, token ${c.token || 'not drawn yet'}, for ${span(c.held_ms || 0)}`)));
  if (q.holders.length > most) list.append(element('li', `and ${number(q.holders.length - most)} more`));
  return list;
}

async function force() {
  const { name, queue } = shown;
  const ok = await ask(['Release ', element('bdi', name), ' by force?'], [element('p', 'It is taken from:'), people(queue),
    element('p', 'Who waits next gets it at once. A holder may go on until it notices: only its token can stop that.')], 'Force release');
  if (!ok) return;
  await told(act('force-release', { name, holders: queue.holders.map((c) => c.id) }),
    (r) => r.removed.length ? `Taken from ${r.removed.map((c) => `${person(c)}, token ${c.token}`).join('; ')}.` : 'Nobody held it any more.');
}

async function giveWay() {
  const { name, queue } = shown;
  const ok = await ask(['Ask for ', element('bdi', name), '?'], [element('p', 'Asked to give way, if they listen for it:'), people(queue),
    element('p', 'Nothing is taken from them.')], 'Ask');
  if (!ok) return;
  await told(act('request-yield', { name, holders: queue.holders.map((c) => c.id) }), () => 'Asked. Nothing was taken away.');
}

async function setLimit() {
  const { name, queue } = shown;
  const value = await ask(['Set the limit of ', element('bdi', name)], [
    element('p', `It is ${number(queue.limit)} now, for all who use it. Nobody loses what is held:`), people(queue)], 'Set limit', queue.limit);
  if (!value) return;
  await told(act('set-limit', { name, limit: value }), (r) => `The limit is ${number(r.limit)}` + (r.limit === r.declared ? ', as its users give it.' : `; its users give ${number(r.declared)}.`));
}
