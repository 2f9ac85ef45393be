import { element, set } from './text.js';

const rows = new WeakMap(); // by tbody, its rows by key

// head fills the first row. A column is {title, order, kind, show or text}.
export function head(table, columns, sort) {
  table.tHead.rows[0].replaceChildren(...columns.map((c) => {
    const th = element('th');
    th.scope = 'col';
    th.setAttribute('role', 'columnheader');
    if (c.kind) th.classList.add(c.kind);
    if (sort && c.order) {
      const b = element('button', c.title);
      b.type = 'button';
      b.addEventListener('click', () => sort(c.order));
      th.append(b);
      th.dataset.order = c.order;
    } else {
      th.textContent = c.title;
    }
    return th;
  }));
}

// fill shows items. A row stays the one of its key, so that what has the focus keeps it.
export function fill(table, columns, items, key) {
  const body = table.tBodies[0];
  const before = rows.get(body) || new Map();
  const now = new Map();
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  items.forEach((item, i) => {
    let k = key(item);
    while (now.has(k)) k += ' ';
    const tr = before.get(k) || row(columns);
    now.set(k, tr);
    columns.forEach((c, j) => {
      const td = tr.cells[j];
      if (c.show) c.show(td, item);
      else set(td, c.text(item));
    });
    if (body.rows[i] !== tr) body.insertBefore(tr, body.rows[i] || null);
  });
  while (body.rows.length > items.length) body.lastElementChild.remove();
  rows.set(body, now);
  if (focused && focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
  table.hidden = items.length === 0;
}

function row(columns) {
  const tr = element('tr');
  tr.setAttribute('role', 'row');
  columns.forEach((c, j) => {
    const td = tr.insertCell();
    td.setAttribute('role', 'cell');
    td.dataset.title = c.title;
    if (j === 0) td.classList.add('first');
    if (c.kind) td.classList.add(c.kind);
  });
  return tr;
}
