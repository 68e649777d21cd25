// Is it learning, what happens in the open round, and what is failing.
import { h, fill, facts, bar, number, percent, bytes, duration, secondsSince, section, remedy, ago, clock } from './dom.js';
import { tables, status, api } from './store.js';
import { lineChart } from './chart.js';

export const title = 'Overview';

// metrics lists what the chart can show, with the value of a line of the history.
const metrics = [
  { name: 'Loss', series: [['mean of the devices', (e) => e.risk], ['held-out rows of the coordinator', (e) => e.held_out_risk],
    ['held-out rows of the devices', (e) => e.evaluation?.risk]] },
  { name: 'R²', series: [['held-out rows of the coordinator', (e) => e.r2], ['held-out rows of the devices', (e) => e.evaluation?.r2]] },
  { name: 'Accuracy', series: [['held-out rows of the coordinator', (e) => e.accuracy],
    ['held-out rows of the devices', (e) => e.evaluation?.accuracy]] },
];

export function open(root) {
  const conditions = h('div', { class: 'conditions' });
  const learning = h('div');
  const round = h('div');
  const day = h('div');
  const chart = lineChart('Metric by model version', 'model version');
  const choice = h('select', { id: 'metric', onchange: () => draw() });
  root.append(conditions, section('Is it learning?', learning, h('p', { class: 'choice' }, h('label', { for: 'metric' }, 'Metric'), choice), chart.root),
    section('The open round', round), section('The last day', day));
  let history = [];
  let loadedFor = null; // state for which the history was loaded
  let loading = false;

  const draw = () => {
    const available = metrics.filter((m) => m.series.some(([, of]) => history.some((e) => Number.isFinite(of(e)))));
    const names = available.map((m) => m.name);
    if (names.join() !== [...choice.options].map((o) => o.value).join()) {
      fill(choice, names.map((n) => h('option', { value: n }, n)));
    }
    const metric = available.find((m) => m.name === choice.value) || available[0];
    choice.parentElement.hidden = available.length < 2;
    chart.root.hidden = !metric;
    if (!metric) return;
    const byVersion = new Map();
    for (const e of history) {
      if (e.outcome === 'abandoned' || !e.version) continue;
      const row = byVersion.get(e.version) || metric.series.map(() => null);
      metric.series.forEach(([, of], i) => { if (Number.isFinite(of(e))) row[i] = of(e); });
      byVersion.set(e.version, row);
    }
    const versions = [...byVersion.keys()].sort((a, b) => a - b);
    const used = metric.series.map(([label], i) => ({ label, values: versions.map((v) => byVersion.get(v)[i]) }))
      .filter((s) => s.values.some((v) => v !== null));
    chart.show(versions, used);
  };

  const load = async (wanted) => {
    if (loading) return;
    loading = true;
    try {
      history = await api('GET', '/v1/history/sample?lines=1000');
      loadedFor = wanted;
      draw();
    } catch { /* the state of the connection is in the head of the page */ }
    setTimeout(() => { loading = false; }, 3000); // rounds may last milliseconds
  };

  return (names) => {
    const s = status();
    if (!s) return;
    if (names.has('status') || names.has('time')) {
      showConditions(conditions, s);
      showLearning(learning, s);
      showRound(round, s);
      const wanted = `${s.round} ${s.aggregations} ${s.evaluation?.version}`;
      if (wanted !== loadedFor) load(wanted);
    }
    if (names.has('log')) showDay(day);
  };
}

function showConditions(root, s) {
  fill(root, (s.conditions || []).map((c) => h('div', { class: 'condition', role: 'alert' },
    h('p', {}, h('strong', {}, c.problem), h('span', { class: 'quiet' }, ` since ${clock(c.since)}`)), h('p', {}, remedy(c.remedy)))));
  if (!s.broker.connected) {
    root.append(h('div', { class: 'condition', role: 'alert' }, h('p', {}, h('strong', {}, 'No connection to the broker'),
      ` since ${clock(s.broker.since)}${s.broker.error ? `: ${s.broker.error}` : ''}`),
    h('p', {}, remedy('check the broker and the section broker of coordinator.yaml: coordinator doctor'))));
  }
  const out = [...tables.devices.values()].filter((d) => d.remedy).length;
  if (out > 0) {
    root.append(h('p', {}, h('a', { href: '#/devices/?out' }, `${out} of ${tables.devices.size} devices take no part`),
      ': the list shows the reason and the remedy of each.'));
  }
}

function showLearning(root, s) {
  const stop = s.stop || {};
  const of = s.wanted ? ` of ${s.wanted}` : '';
  fill(root, facts([
    ['Model', [`version ${s.aggregations}${of} `, s.wanted ? bar(s.aggregations, s.wanted, 'Progress of the run') : '']],
    ['Best model', stop.best_version ? `version ${stop.best_version}, loss ${number(stop.best_risk)}` : null],
    ['Loss of the devices', s.losses.length ? number(s.losses[s.losses.length - 1]) : null],
    ['Held-out rows', s.held_out_r2 !== undefined || s.held_out_accuracy !== undefined || s.held_out_risk !== undefined
      ? [s.held_out_r2 !== undefined ? `R² ${number(s.held_out_r2)} ` : '', s.held_out_accuracy !== undefined ? `accuracy ${percent(s.held_out_accuracy)} ` : '',
        s.held_out_risk !== undefined ? `loss ${number(s.held_out_risk)}` : ''] : null],
    ['Held-out rows of the devices', s.evaluation?.agents ? `${s.evaluation.r2 !== undefined ? `R² ${number(s.evaluation.r2)} ` : ''}${
      s.evaluation.accuracy !== undefined ? `accuracy ${percent(s.evaluation.accuracy)} ` : ''}loss ${number(s.evaluation.risk)} (version ${s.evaluation.version}, ${
      s.evaluation.agents} devices)` : null],
    ['Model in use', s.rollout ? `${s.rollout.released}${s.rollout.candidate ? `; ${s.rollout.candidate} is tried by some devices` : ''}` : null],
    ['Stop rule', stopRules(stop, s) || 'none'],
    ['Time left', stop.seconds ? duration(stop.seconds - secondsSince(stop.since)) : null],
    ['Bytes left', stop.most_bytes ? `${bytes(Math.max(0, stop.most_bytes - stop.bytes))} of ${bytes(stop.most_bytes)}` : null],
    ['Ended', s.ended ? `${s.ended}; to continue, raise the limit that ended the run` : null],
  ]));
}

function stopRules(stop, s) {
  const rules = [];
  if (s.wanted) rules.push(`${s.wanted} rounds`);
  if (stop.target_risk) rules.push(`loss ≤ ${number(stop.target_risk)}`);
  if (stop.target_r2) rules.push(`R² ≥ ${number(stop.target_r2)}`);
  if (stop.target_accuracy) rules.push(`accuracy ≥ ${number(stop.target_accuracy)}`);
  if (stop.patience) rules.push(`${stop.without_improvement} of ${stop.patience} rounds without improvement`);
  return rules.join(' or ');
}

function showRound(root, s) {
  const began = secondsSince(s.opened);
  const phase = `${s.phase} for ${duration(secondsSince(s.phase_since))}`;
  if (!s.round) {
    fill(root, facts([['Phase', phase], ['Devices', `${s.agents} eligible of ${s.enrolled}`], ['Waiting', waiting(s)]]));
    return;
  }
  const accepted = s.participants.filter((p) => p.state === 'accepted');
  const middle = (all) => (all.length ? duration(all.sort((a, b) => a - b)[Math.floor(all.length / 2)]) : '–');
  const times = accepted.map((p) => p.after || 0);
  const slow = times.length ? 2 * [...times].sort((a, b) => a - b)[Math.floor(times.length / 2)] : Infinity;
  const collecting = s.phase === 'collecting';
  const busy = s.participants.filter((p) => p.state === 'invited' || p.state === 'at work');
  const late = collecting && !s.draws && began > slow ? busy.length : 0;
  const count = (state) => s.participants.filter((p) => p.state === state).length;
  fill(root, facts([
    ['Round', `${s.round}${s.attempt > 1 ? `, attempt ${s.attempt}` : ''} (${s.kind})`],
    ['Phase', phase],
    ['Devices', `${s.agents} eligible of ${s.enrolled}`],
    ['Drawn', String(s.participants.length)],
    ['Training', String(count('at work'))],
    ['Sent', [`${accepted.length} `, bar(accepted.length, s.participants.length, 'Updates sent')]],
    ['Late', String(late)],
    ['Refused or declined', String(count('out'))],
    ['Time until an update', `${middle(times)} (median)`],
    ['Deadline', collecting ? [`${duration(began)} of ${duration(s.deadline)} `, bar(began, s.deadline, 'Time until the deadline')] : duration(s.deadline)],
    ['Abandoned', s.abandoned ? `${s.abandoned} rounds since the start` : null],
    ['Waiting', waiting(s)],
  ]));
  const out = s.participants.filter((p) => p.state === 'out');
  if (out.length) {
    root.append(h('ul', {}, out.slice(0, 20).map((p) => h('li', {}, h('a', { href: `#/devices/${encodeURIComponent(p.agent)}` }, p.agent), `: ${p.why}`))));
  }
}

function waiting(s) {
  if (!s.waits) return null;
  if (s.waits.until && !s.waits.until.startsWith('0001')) return `for the time window that opens ${clock(s.waits.until)}`;
  return `for new rows: ${s.waits.agents_with_new_rows} of ${s.waits.agents_wanted} devices have ${s.waits.rows_wanted}`;
}

// showDay lists what went wrong in the last day, each message once with its number.
function showDay(root) {
  const since = Date.now() - 86400e3;
  const seen = new Map();
  for (const r of tables.log.values()) {
    if (r.level === 'INFO' || Date.parse(r.time) < since) continue;
    const known = seen.get(r.message) || { count: 0 };
    seen.set(r.message, { ...r, count: known.count + 1 });
  }
  const all = [...seen.values()].sort((a, b) => Date.parse(b.time) - Date.parse(a.time)).slice(0, 10);
  fill(root, all.length ? h('ul', { class: 'day' }, all.map((r) => h('li', { class: r.level === 'ERROR' ? 'bad' : 'warn' },
    `${r.message}${r.count > 1 ? ` (${r.count} times)` : ''}, ${ago(r.time)}`, r.attributes ? h('div', { class: 'quiet' }, r.attributes) : null)))
    : h('p', { class: 'quiet' }, 'No warnings.'), h('p', {}, h('a', { href: '#/events' }, 'All events')));
}
