import { set } from './text.js';

const $ = (id) => document.getElementById(id);
let before = () => {}; // ends the question before

// ask shows a dialog, and returns whether it was confirmed; with a number, which one was
// given.
export function ask(title, text, button, number) {
  before(false);
  const dialog = $('confirm');
  $('confirm-title').replaceChildren(...title);
  $('confirm-text').replaceChildren(...text);
  set($('confirm-yes'), button);
  $('confirm-field').hidden = number === undefined;
  $('confirm-value').required = number !== undefined;
  $('confirm-value').value = number ?? '';
  return new Promise((resolve) => {
    const end = new AbortController();
    const done = (value) => {
      end.abort();
      if (dialog.open) dialog.close();
      resolve(value);
    };
    before = done;
    const on = (e, what, f) => e.addEventListener(what, f, { signal: end.signal });
    on($('confirm-no'), 'click', () => done(false));
    // By the key Escape. That the dialog before was closed may be told only now.
    on(dialog, 'close', () => { if (!dialog.open) done(false); });
    on($('confirm-form'), 'submit', (e) => {
      e.preventDefault();
      done(number === undefined ? true : $('confirm-value').valueAsNumber);
    });
    dialog.showModal();
    (number === undefined ? $('confirm-no') : $('confirm-value')).focus();
  });
}
