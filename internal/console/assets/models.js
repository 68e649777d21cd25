// The models on disk: metrics, comparison, who uses which, rollout, return to an earlier model, download.
import { h, fill, facts, number, percent, bytes, section, table, confirmed } from './dom.js';
import { tables, session, status, api } from './store.js';

export const title = 'Models';

export function open(root) {
  const rollout = h('div');
  const users = h('div');
  const list = h('div');
  const answer = h('p', { role: 'status' });
  const comparison = h('div');
  const run = h('select', { id: 'run', onchange: () => load() });
  const before = h('select', { id: 'before' });
  const after = h('select', { id: 'after' });
  root.append(section('In use', rollout, users), section('Models on disk', h('p', { class: 'choice' }, h('label', { for: 'run' }, 'Run'), run), answer, list),
    !session.named ? '' : section('Compare', h('p', { class: 'choice' }, h('label', { for: 'before' }, 'Version'), before, h('label', { for: 'after' }, 'with'), after,
      h('button', { type: 'button', onclick: () => compare() }, 'Compare')), comparison));
  let loadedFor = null;

  const compare = async () => {
    try {
      const c = await api('GET', `/v1/runs/${run.value}/models/${before.value}/diff/${after.value}`);
      fill(comparison, table('Tensors', ['Tensor', 'Shape', 'Change ‖b − a‖', 'Largest change', 'Norm before'],
        c.tensors.map((t) => [t.name, (t.shape || []).join(' × ') || 'scalar', t.mismatch || number(t.change), t.mismatch ? '' : number(t.largest), t.mismatch ? '' : number(t.norm_before)]), 'No tensors.'),
      table('Metadata', ['Key', 'Before', 'After'], c.metadata.map((m) => [m.key, m.before || 'none', m.after || 'none']), 'Equal metadata.'));
    } catch (e) {
      fill(comparison, h('p', { role: 'alert' }, e.message));
    }
  };

  const use = async (version) => {
    if (!await confirmed(`Begin a new run from model ${run.value}/${version}? Devices then train from this model.`, 'Begin a new run')) return;
    try {
      await api('POST', '/v1/task', { new_run: true, from: `${run.value}/${version}` });
      answer.textContent = `A new run begins from model ${run.value}/${version} after the open round.`;
    } catch (e) {
      answer.textContent = e.message;
    }
  };

  const load = async () => {
    try {
      const runs = (await api('GET', '/v1/runs')).reverse();
      const chosen = run.value || String(runs[0]?.run || '');
      fill(run, runs.map((r) => h('option', { value: r.run }, `${r.run}${r.task ? ` (${r.task})` : ''}`)));
      run.value = chosen;
      if (!chosen) {
        fill(list, h('p', { class: 'quiet' }, 'No model has been made yet.'));
        return;
      }
      const [models, history] = await Promise.all([api('GET', `/v1/runs/${chosen}/models`), api('GET', '/v1/history/sample?lines=10000')]);
      const metrics = new Map();
      for (const e of history) {
        if (String(e.run) === chosen && e.outcome !== 'abandoned') metrics.set(e.version, { ...metrics.get(e.version), ...pick(e) });
      }
      models.reverse();
      fill(list, table('Models on disk', ['Version', 'Loss', 'Held-out loss', 'R²', 'Accuracy', 'Size', 'Download', ...(session.operate ? ['Action'] : [])], models.map((m) => {
        const x = metrics.get(m.version) || {};
        const path = `/v1/runs/${chosen}/models/${m.version}`;
        return [`${m.version}${m.present ? ' (current)' : ''}`, number(x.risk), number(x.held ?? x.evaluated), number(x.r2), percent(x.accuracy), bytes(m.bytes),
          !session.named ? 'needs a token' : ['safetensors', 'onnx'].map((f) => h('a', { class: 'download', href: `${path}?format=${f}`, download: `model-${chosen}-${m.version}.${f}` }, f)),
          ...(session.operate ? [h('button', { type: 'button', onclick: () => use(m.version) }, 'Begin a run from here')] : [])];
      }), 'The run has no models on disk.'));
      const options = () => models.map((m) => h('option', { value: m.version }, String(m.version)));
      const chosenBefore = before.value;
      const chosenAfter = after.value;
      fill(before, options());
      fill(after, options());
      before.value = chosenBefore || String(models[1]?.version ?? models[0]?.version);
      after.value = chosenAfter || String(models[0]?.version);
    } catch (e) {
      fill(list, h('p', { role: 'alert' }, e.message));
    }
  };

  return (names) => {
    const s = status();
    if (!s) return;
    if (names.has('status')) {
      const r = s.rollout;
      fill(rollout, r ? facts([['All devices', r.released], ['Tried by some devices', r.candidate ? `${r.candidate}${r.agents ? ` (${r.agents} devices at the start)` : ''}` : 'none'],
        ['Last rollout', r.last ? `model ${r.of}: ${r.last}` : null]])
        : h('p', { class: 'quiet' }, 'Devices predict with each new model as soon as they receive it (predict.rollout is off).'));
      const wanted = `${s.aggregations} ${s.task.version}`;
      if (wanted !== loadedFor && !document.activeElement?.closest('select')) {
        loadedFor = wanted;
        load();
      }
    }
    if (names.has('devices')) {
      const by = new Map();
      for (const d of tables.devices.values()) if (d.model_in_use) by.set(d.model_in_use, (by.get(d.model_in_use) || 0) + 1);
      const rows = [...by].sort(([a], [b]) => b - a).map(([version, n]) => [`version ${version}`, String(n)]);
      fill(users, rows.length ? table('Devices by model in use', ['Model', 'Devices'], rows, '') : h('p', { class: 'quiet' }, 'No device has reported the model with which it predicts.'));
    }
  };
}

function pick(e) {
  const all = { risk: e.risk, held: e.held_out_risk, r2: e.r2 ?? e.evaluation?.r2, accuracy: e.accuracy ?? e.evaluation?.accuracy, evaluated: e.evaluation?.risk };
  return Object.fromEntries(Object.entries(all).filter(([, v]) => v !== undefined && v !== null));
}
