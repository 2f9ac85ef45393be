import { forgetToken, get, hasToken, keepToken, Refused } from './api.js';
import * as name from './name.js';
import * as overview from './overview.js';
import { clock, set, span } from './text.js';

const $ = (id) => document.getElementById(id);
const every = 1000;

let view = null; // what is shown: overview, detail or login
let known = false; // who the caller is
let good = 0; // when the last reply came
let timer;
let under = new AbortController(); // the refresh that is under way

function show(which) {
  view = which;
  for (const id of ['login', 'overview', 'detail']) $(id).hidden = id !== which;
  $('forget').hidden = !hasToken() || which === 'login';
}

// route shows what the address says: #/NAME is a name.
function route() {
  if (view === 'login') return;
  const hash = location.hash;
  set($('done'), '');
  let of = '';
  try {
    of = hash.startsWith('#/') ? decodeURIComponent(hash.slice(2)) : '';
  } catch { /* no name of ours */ }
  document.title = of ? `${of} – pawl` : 'pawl';
  if (of) {
    name.open(of);
    show('detail');
    $('name').focus({ preventScroll: true });
  } else {
    show('overview');
  }
  window.scrollTo(0, 0);
  now();
}

// now reads at once, whatever is under way.
function now() {
  clearTimeout(timer);
  under.abort();
  under = new AbortController();
  refresh(under.signal);
}

async function refresh(signal) {
  let again = true;
  try {
    if (!known) await identify(signal);
    const r = await (view === 'detail' ? name : overview).refresh(signal);
    if (signal.aborted) return;
    good = Date.now();
    trouble(r && r.trouble ? `The store cannot be read: ${r.trouble}. This is how it was ${span(r.read_ms)} ago.` : '');
    set($('fresh'), `as of ${clock(r ? r.read_ms : 0)}`);
  } catch (e) {
    if (signal.aborted) return;
    again = failed(e);
  }
  if (again && !document.hidden) timer = setTimeout(now, every);
}

async function identify(signal) {
  const who = await get('whoami', {}, signal);
  known = true;
  name.allow(who);
  set($('store'), [who.store, who.who && `you are ${who.who}`].filter(Boolean).join(', '));
}

// failed shows what went wrong, and returns whether to try again.
function failed(e) {
  if (e instanceof Refused && e.status === 401) {
    set($('login-error'), hasToken() ? e.message : '');
    forgetToken();
    known = false;
    trouble('');
    show('login');
    $('token').focus();
    return false;
  }
  trouble(e.message + (good ? `. This is of ${clock(Date.now() - good)}.` : ''));
  return true;
}

function trouble(text) {
  $('trouble').hidden = !text;
  set($('trouble'), text);
}

$('login-form').addEventListener('submit', (e) => {
  e.preventDefault();
  const token = $('token').value.trim();
  $('token').value = '';
  if (!/^[!-~]+$/.test(token)) {
    set($('login-error'), 'A token has no spaces and no other letters than those of ASCII.');
    return;
  }
  keepToken(token);
  set($('login-error'), '');
  view = null;
  route();
});
$('forget').addEventListener('click', () => { forgetToken(); location.reload(); });
$('skip').addEventListener('click', (e) => { e.preventDefault(); $('main').focus(); });
document.addEventListener('visibilitychange', () => { if (!document.hidden && view !== 'login') now(); });
document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || $('confirm').open) return;
  if (e.key === '/' && view === 'overview' && e.target !== $('search')) {
    e.preventDefault();
    $('search').focus();
  } else if (e.key === 'Escape' && view === 'detail') {
    location.hash = '';
  }
});
window.addEventListener('hashchange', route);
overview.begin(now);
name.begin(now);
route();
