// The token is kept for this tab only. It goes in a header, never in an address.
const key = 'pawl-token';

export const hasToken = () => sessionStorage.getItem(key) !== null;
export const forgetToken = () => sessionStorage.removeItem(key);
export const keepToken = (token) => sessionStorage.setItem(key, token);

// Refused is a reply that says what is wrong.
export class Refused extends Error {
  constructor(status, reply) {
    super(reply.error || `status ${status}`);
    this.status = status;
    this.code = reply.code;
  }
}

export function get(path, query, signal) {
  const q = new URLSearchParams(query);
  return send(`v1/${path}?${q}`, { signal }, {});
}

// act sends what an operator has confirmed. No other site's page can send that header.
export function act(path, body) {
  return send(`v1/${path}`, { method: 'POST', body: JSON.stringify(body) }, { 'Content-Type': 'application/json', 'Pawl-Action': 'confirmed' });
}

async function send(path, options, headers) {
  if (hasToken()) headers.Authorization = `Bearer ${sessionStorage.getItem(key)}`;
  let res;
  try {
    res = await fetch(path, { ...options, headers, cache: 'no-store', redirect: 'error' });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Error('pawl serve does not reply');
  }
  let reply = {};
  try {
    reply = await res.json();
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    if (res.ok) throw new Error('pawl serve broke off its reply');
  }
  if (!res.ok) throw new Refused(res.status, reply);
  return reply;
}
