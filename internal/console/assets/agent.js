// The page of a device: its data, rounds, forecasts and budget, for each of its federations.
import { h, svg, fill, facts, number, bytes, duration, ago, clock, remedy, section, table, bar } from './dom.js';
import { tables, session, link, loadSession, onChange } from './store.js';

const main = document.getElementById('main');

onChange(() => {
  const all = [...tables.status.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, s]) => s);
  const state = document.getElementById('link');
  state.className = link.state;
  state.textContent = link.state === 'lost' ? `no connection for ${duration((Date.now() - link.since) / 1000)}` : link.state;
  if (session.absence) fill(main, h('p', {}, session.absence.reason));
  if (all.length === 0) return;
  document.getElementById('device').textContent = `${all[0].id}, ${all[0].version}`;
  fill(main, h('h1', {}, all[0].id), all.map(federation));
});
loadSession();

function federation(s) {
  return [
    (s.conditions || []).map((c) => h('div', { class: 'condition', role: 'alert' },
      h('p', {}, h('strong', {}, c.problem), h('span', { class: 'quiet' }, ` since ${clock(c.since)}`)), h('p', {}, remedy(c.remedy)))),
    section(`Federation ${s.federation}`, facts([
      ['Broker', s.broker.connected ? `connected since ${clock(s.broker.since)}` : `not connected since ${clock(s.broker.since)}${s.broker.error ? `: ${s.broker.error}` : ''}`],
      ['Round', s.round ? `${s.round} (${s.phase})` : 'no announcement'],
      ['Task', s.fit === 'fit' ? 'the data fit the task' : s.fit || 'unknown'],
      ['At work', s.work ? `round ${s.work.round} (${s.work.kind}), until ${clock(s.work.until)}` : 'no'],
      ['Certificate', s.certificate_expires ? `valid until ${clock(s.certificate_expires)}` : null],
      ...Object.entries(s.values || {}).map(([name, text]) => [name, text]),
    ])),
    section('Data', facts([['Rows', String(s.rows)], ['Rows without a value', s.rows_not_made ? String(s.rows_not_made) : null]]),
      table('Inputs', ['Input', 'Used', 'Newest', 'Unused', 'Last unused value'], (s.inputs || []).map((i) => [i.name || 'unreadable messages', `${i.used} of ${i.came}`,
        i.newest ? ago(i.newest) : '–', Object.entries(i.unused || {}).map(([reason, n]) => `${n} ${reason}`).join(', ') || '–',
        i.where ? `${i.where}${i.problem ? `: ${i.problem}` : ''}` : '–']), 'No values have been read yet.')),
    section('Rounds', facts([
      ['Since the start', counts(s.results)], ['Updates', counts(s.updates)],
      ['Last training', s.trained ? `round ${s.trained.round}: ${s.trained.local_steps} local steps in ${duration(s.trained.took)}` : 'none'],
      ['Loss before and after it', s.trained?.risk_before !== undefined ? `${number(s.trained.risk_before)} → ${number(s.trained.risk_after)}` : null],
      ['Loss of the last rounds', s.losses.length > 1 ? sparkline(s.losses) : null],
    ])),
    section('Forecasts', s.model ? facts([['Model in use', `${s.model.run}/${s.model.version}${s.model.pinned ? ', chosen by the owner' : ''}`],
      ['In use since', clock(s.model.since)]]) : h('p', { class: 'quiet' }, 'The device does not predict.')),
    s.budget ? section('Budget', facts([['Month', s.budget.month], ['Used', [`${bytes(s.budget.used)} of ${bytes(s.budget.limit)} `,
      bar(s.budget.used, s.budget.limit, 'Used bytes of the month')]]])) : null,
    s.refusals.length ? section('Refused or declined', h('ul', { class: 'day' }, [...s.refusals].reverse().map((r) => h('li', {},
      `${clock(r.at)}, round ${r.round}: ${r.what}, ${r.reason}`)))) : null,
  ];
}

const counts = (by) => Object.entries(by || {}).map(([name, n]) => `${n} ${name}`).join(', ') || 'none';

// sparkline draws numbers as a small line.
function sparkline(values) {
  const least = Math.min(...values);
  const range = Math.max(...values) - least || 1;
  const points = values.map((v, i) => `${(200 * i) / (values.length - 1)},${38 - (36 * (v - least)) / range}`).join(' ');
  return svg('svg', { viewBox: '0 0 200 40', class: 'sparkline', role: 'img', 'aria-label': `Loss from ${number(values[0])} to ${number(values[values.length - 1])}` },
    svg('polyline', { points, fill: 'none', 'stroke-width': 2 }));
}
