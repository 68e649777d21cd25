// Helpers to build elements and to format values. Texts are always set as text nodes, never as HTML, because names and
// reasons come from devices.

// h creates an element. Attributes whose names begin with "on" are event listeners, and attributes that are null, false or
// undefined are left out. Children are elements, texts, or lists of them.
export function h(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  set(e, attributes);
  e.append(...flatten(children));
  return e;
}

// svg is like h for elements of a picture.
export function svg(tag, attributes = {}, ...children) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  set(e, attributes);
  e.append(...flatten(children));
  return e;
}

function set(e, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value);
    else e.setAttribute(name, value === true ? '' : value);
  }
}

const flatten = (children) => children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false);

// fill replaces the children of an element.
export function fill(e, ...children) {
  e.replaceChildren(...flatten(children));
}

// number formats a number with four significant digits, or returns a dash.
export function number(x) {
  if (x === null || x === undefined || Number.isNaN(x)) return '–';
  if (x !== 0 && (Math.abs(x) < 1e-3 || Math.abs(x) >= 1e6)) return x.toExponential(2);
  return String(Number(x.toPrecision(4)));
}

export const percent = (share) => (Number.isFinite(share) ? `${Math.round(100 * share)} %` : '–');

export function bytes(n) {
  if (n === null || n === undefined) return '–';
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let i = 0;
  for (; n >= 1000 && i < units.length - 1; i++) n /= 1000;
  return `${Number(n.toPrecision(3))} ${units[i]}`;
}

// duration formats seconds.
export function duration(s) {
  if (!Number.isFinite(s)) return '–';
  s = Math.max(0, s);
  if (s < 1) return `${Math.round(1000 * s)} ms`;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.round((s % 86400) / 3600)} h`;
}

// secondsSince returns the seconds since a time in the format of JSON, or NaN if there is none.
export const secondsSince = (time) => (isTime(time) ? (Date.now() - Date.parse(time)) / 1000 : NaN);

export const isTime = (time) => Boolean(time) && !time.startsWith('0001-');

export const clock = (time) => (isTime(time) ? new Date(time).toLocaleString() : '–');

// ago formats the time since an event.
export const ago = (time) => (isTime(time) ? `${duration(secondsSince(time))} ago` : 'never');

// command shows a command with a button that copies it.
export function command(text) {
  const button = h('button', { type: 'button', class: 'copy', 'aria-label': `Copy: ${text}`, onclick: async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = 'copied';
    setTimeout(() => { button.textContent = 'copy'; }, 2000);
  } }, 'copy');
  return h('span', { class: 'command' }, h('code', {}, text), navigator.clipboard ? button : null);
}

// remedy shows a remedy. Parts that are commands, in backquotes or at the end after a colon, can be copied.
export function remedy(text) {
  const parts = text.split('`');
  if (parts.length > 1) return parts.map((part, i) => (i % 2 ? command(part) : part));
  const found = /^(.*: )((?:coordinator|agentd) [^:]*)$/.exec(text);
  return found ? [found[1], command(found[2])] : [text];
}

// facts returns a list of names and values. Values that are null are left out.
export const facts = (pairs) => h('dl', { class: 'facts' }, pairs.filter(([, value]) => value !== null)
  .map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));

// bar shows a share of a whole.
export const bar = (done, of, label) => h('progress', { max: of || 1, value: Math.min(done, of || 1), 'aria-label': label });

// table returns a table with a caption for screen readers. Rows are lists of cells.
export const table = (caption, head, rows, empty) => (rows.length === 0 ? h('p', { class: 'quiet' }, empty)
  : h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    h('table', {}, h('caption', {}, caption), h('thead', {}, h('tr', {}, head.map((c) => h('th', { scope: 'col' }, c)))),
      h('tbody', {}, rows.map((cells) => h('tr', {}, cells.map((c) => h('td', {}, c))))))));

// section returns a section with a heading.
export const section = (title, ...children) => h('section', {}, h('h2', {}, title), ...children);

// confirmed asks before an action that has consequences, and reports whether the user agrees.
export function confirmed(question, action) {
  return new Promise((resolve) => {
    const dialog = h('dialog', { 'aria-label': question },
      h('p', {}, question),
      h('p', { class: 'buttons' },
        h('button', { type: 'button', class: 'danger', onclick: () => dialog.close('yes') }, action),
        h('button', { type: 'button', onclick: () => dialog.close('') }, 'Cancel')));
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes');
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
