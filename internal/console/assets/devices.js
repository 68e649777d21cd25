// The list of devices, and the page of one device.
import { h, fill, facts, number, percent, bytes, duration, ago, clock, remedy, section, confirmed } from './dom.js';
import { tables, session, status, api } from './store.js';

export const title = 'Devices';

const rowHeight = 36; // in CSS pixels, as in style.css
const share = (d) => d.accepted / (d.accepted + d.failed);

// columns lists the columns of the list: heading, text, value to sort by, and a class.
const columns = [
  ['Device', (d) => d.agent, (d) => d.agent, 'id'],
  ['State', (d) => d.state, (d) => d.state, 'state'],
  ['Reason', (d) => d.why || '', (d) => d.why || '', 'why'],
  ['Seen', (d) => ago(d.last_seen), (d) => -Date.parse(d.last_seen || 0), ''],
  ['Version', (d) => d.version || '–', (d) => d.version || '', ''],
  ['Rows', (d) => (d.rows ? String(d.rows) : '–'), (d) => d.rows, 'number'],
  ['Rounds', (d) => String(d.rounds), (d) => d.rounds, 'number'],
  ['Accepted', (d) => percent(share(d)), (d) => share(d) || 0, 'number'],
  ['Step', (d) => (d.step_time === undefined ? '–' : duration(d.step_time)), (d) => d.step_time || 0, 'number'],
  ['Month', (d) => bytes(d.bytes_this_month), (d) => d.bytes_this_month || 0, 'number'],
];

export function open(root, argument) {
  if (argument && !argument.startsWith('?')) return openDevice(root, argument);
  const counts = h('p', { class: 'counts' });
  const search = h('input', { type: 'search', id: 'search', placeholder: 'id, state or reason', oninput: () => arrange() });
  const only = h('input', { type: 'checkbox', id: 'out', onchange: () => arrange() });
  only.checked = argument === '?out';
  let sortBy = 0;
  let down = false;
  const heads = columns.map(([name, , , kind], i) => h('div', { role: 'columnheader', class: kind, 'aria-sort': 'none' },
    h('button', { type: 'button', onclick: () => {
      down = sortBy === i && !down;
      sortBy = i;
      arrange();
    } }, name)));
  const space = h('div', { class: 'space', role: 'presentation' });
  const view = h('div', { class: 'rows', tabindex: '0', role: 'rowgroup', 'aria-label': 'Rows' }, space);
  const list = h('div', { class: 'devices', role: 'table', 'aria-label': 'Devices' },
    h('div', { role: 'rowgroup' }, h('div', { role: 'row', class: 'head' }, heads)), view);
  root.append(counts, h('p', { class: 'choice' }, h('label', { for: 'search' }, 'Find'), search, only,
    h('label', { for: 'out' }, 'only devices that take no part')), list);
  let shown = []; // devices in the order of the list
  let rows = new Map(); // elements of the visible rows by position

  // arrange filters and sorts the devices. The list has elements only for the visible rows, so that 10,000 devices stay
  // usable.
  const arrange = () => {
    const text = search.value.toLowerCase();
    shown = [...tables.devices.values()].filter((d) => (!only.checked || d.remedy)
      && (!text || d.agent.toLowerCase().includes(text) || d.state.includes(text) || (d.why || '').toLowerCase().includes(text)));
    const value = columns[sortBy][2];
    const keyed = shown.map((d) => [value(d), d]);
    keyed.sort(([a, x], [b, y]) => (a < b ? -1 : a > b ? 1 : x.agent < y.agent ? -1 : 1));
    if (down) keyed.reverse();
    shown = keyed.map(([, d]) => d);
    heads.forEach((e, i) => e.setAttribute('aria-sort', i !== sortBy ? 'none' : down ? 'descending' : 'ascending'));
    list.setAttribute('aria-rowcount', String(shown.length + 1));
    space.style.height = `${shown.length * rowHeight}px`;
    draw();
  };

  const draw = () => {
    const first = Math.max(0, Math.floor(view.scrollTop / rowHeight) - 5);
    const last = Math.min(shown.length, first + Math.ceil(view.clientHeight / rowHeight) + 10);
    const next = new Map();
    for (let i = first; i < last; i++) {
      const d = shown[i];
      const row = rows.get(i) || h('div', { role: 'row', class: 'row' }, columns.map(([, , , kind]) => h('div', { role: 'cell', class: kind })));
      row.style.top = `${i * rowHeight}px`;
      row.setAttribute('aria-rowindex', String(i + 2));
      columns.forEach(([, of], c) => {
        const cell = row.children[c];
        const value = of(d);
        if (cell.dataset.value === value) return;
        cell.dataset.value = value;
        if (c === 0) fill(cell, h('a', { href: `#/devices/${encodeURIComponent(d.agent)}` }, value));
        else cell.textContent = value;
      });
      row.dataset.state = d.remedy ? 'out' : d.state;
      next.set(i, row);
    }
    for (const [i, row] of rows) if (!next.has(i)) row.remove();
    for (const row of next.values()) if (!row.parentElement) space.append(row);
    rows = next;
  };
  view.addEventListener('scroll', draw);
  return (names) => {
    if (names.has('devices')) {
      arrange();
      const by = {};
      for (const d of tables.devices.values()) by[d.state] = (by[d.state] || 0) + 1;
      counts.textContent = `${tables.devices.size} devices: ${Object.entries(by).map(([state, n]) => `${n} ${state}`).join(', ')}`;
    } else if (names.has('time')) {
      draw();
    }
  };
}

function openDevice(root, id) {
  const why = h('div');
  const about = h('div');
  const events = h('div');
  const answer = h('p', { role: 'status' });
  const audit = h('div');
  document.title = `${id} – fedmesh`;
  fill(root, h('p', {}, h('a', { href: '#/devices' }, 'All devices')), h('h1', {}, id), why, section('Figures', about));
  if (session.operate) root.append(section('Actions', actions(id, answer), answer));
  root.append(section('History of the device', events, audit));
  if (session.named) api('GET', '/v1/audit?count=10000').then((entries) => {
    const own = entries.filter((e) => e.agent === id || (e.about || '').includes(`/devices/${id}/`)).slice(0, 50);
    fill(audit, own.length ? h('h3', {}, 'Audit log') : [], h('ul', { class: 'day' }, own.map((e) => h('li', {},
      `${clock(e.time)}: ${e.event} ${e.about || ''} ${e.who ? `by ${e.who}` : ''}`))));
  }).catch((e) => fill(audit, h('p', { class: 'quiet' }, `No audit log: ${e.message}.`)));
  return (names) => {
    const d = tables.devices.get(id);
    if (!d) {
      fill(why, status() ? h('p', { role: 'alert' }, 'This device is not enrolled.') : []);
      return;
    }
    if (names.has('devices') || names.has('time')) {
      if (names.has('devices')) {
        fill(why, d.remedy ? h('div', { class: 'condition' }, h('p', {}, h('strong', {}, 'This device takes no part: '), d.why || d.state),
          d.where ? h('p', {}, `Place: ${d.where}`) : null, h('p', {}, 'Remedy: ', remedy(d.remedy)))
          : h('p', { class: 'good' }, 'This device takes part.'));
      }
      fill(about, facts([
        ['State', d.state], ['Last seen', `${ago(d.last_seen)} (${clock(d.last_seen)})`], ['Version', d.version || '–'],
        ['Root document', d.root ? String(d.root) : null], ['Rows', String(d.rows || '–')], ['Rounds', String(d.rounds)],
        ['Accepted updates', `${d.accepted} (${percent(share(d))})`], ['Failed rounds', String(d.failed)],
        ['Updates left out of models', String(d.left_out)], ['Clipped updates', String(d.clipped)],
        ['Time of a local step', d.step_time === undefined ? '–' : duration(d.step_time)], ['Bytes this month', bytes(d.bytes_this_month)],
        ['Model in use', d.model_in_use ? `version ${d.model_in_use}` : null],
        ['Battery', d.battery === undefined ? null : percent(d.battery)], ['Temperature', d.temperature === undefined ? null : `${number(d.temperature)} °C`],
      ]));
    }
    if (names.has('log')) {
      const own = [...tables.log.values()].filter((r) => mentions(r, id)).slice(-50).reverse();
      fill(events, own.length ? h('ul', { class: 'day' }, own.map((r) => h('li', {}, `${clock(r.time)}: ${r.message}`,
        h('div', { class: 'quiet' }, r.attributes || ''))))
        : h('p', { class: 'quiet' }, 'The log of this process does not mention the device.'));
    }
  };
}

// mentions reports whether a log record is about a device.
export const mentions = (r, id) => (r.attributes || '').split(/[\s[\],"]+/).some((word) => word === id || word.split('=')[1] === id);

function actions(id, answer) {
  const act = (label, question, path, done) => h('button', { type: 'button', onclick: async () => {
    if (!await confirmed(question, label)) return;
    try {
      await api('POST', path, {});
      answer.textContent = done;
    } catch (e) {
      answer.textContent = e.message;
    }
  } }, label);
  const path = `/v1/devices/${encodeURIComponent(id)}`;
  return h('p', { class: 'buttons' },
    act('Revoke', `Revoke ${id}? The coordinator then ignores its messages, and the device must join again.`, `${path}/revoke`, `${id} is revoked.`),
    act('Reset the start counter', `Accept ${id} again after it has lost its state folder?`, `${path}/reset`, `The start counter of ${id} is reset.`),
    h('a', { href: `#/enrolment/${encodeURIComponent(id)}` }, 'Rotate the key …'));
}
