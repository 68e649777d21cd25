// The task in effect, changes with their effect before they are applied, pause, resume, stop, and the audit log.
import { h, fill, facts, clock, section, table, confirmed } from './dom.js';
import { session, status, api } from './store.js';

export const title = 'Task';

export function open(root) {
  const state = h('div');
  const text = h('textarea', { id: 'yaml', rows: '18', spellcheck: 'false', readonly: !session.operate });
  const preview = h('div', { role: 'status' });
  const answer = h('p', { role: 'status' });
  const log = h('div');
  let loadedFor = null;
  let edited = false;
  text.addEventListener('input', () => { edited = true; });

  const send = async (path, body, done) => {
    try {
      await api('POST', path, body);
      answer.textContent = done;
      loadedFor = null;
    } catch (e) {
      answer.textContent = e.message;
    }
    loadLog();
  };
  const controls = h('p', { class: 'buttons' },
    h('button', { type: 'button', onclick: () => send('/v1/task/pause', {}, 'The run pauses after the open round.') }, 'Pause'),
    h('button', { type: 'button', onclick: () => send('/v1/task/resume', {}, 'The run continues.') }, 'Resume'),
    h('button', { type: 'button', class: 'danger', onclick: async () => {
      if (await confirmed('End the run? Its model is kept. A new run can begin later.', 'Stop')) send('/v1/task/stop', {}, 'The run ends.');
    } }, 'Stop'));
  const apply = async (newRun) => {
    try {
      const p = await api('POST', '/v1/task', { name: 'the console', text: text.value, new_run: newRun || undefined });
      answer.textContent = p.waits ? `Version ${p.version} takes effect after the open round.` : `Version ${p.version} takes effect now.`;
      edited = false;
      loadedFor = null;
      fill(preview);
    } catch (e) {
      answer.textContent = e.message;
    }
    loadLog();
  };
  const compare = async () => {
    answer.textContent = '';
    try {
      const p = await api('POST', '/v1/task', { name: 'the console', text: text.value, check: true });
      fill(preview, table('Changes', ['Key', 'Before', 'After', 'Effect'], p.changes.map((c) => [h('code', {}, c.key), c.before, c.after, [c.effect, c.note ? `; ${c.note}` : '']]),
        'The text does not differ from the task in effect.'));
      if (p.changes.length) {
        preview.append(p.needs ? h('p', {}, `The change requires a ${p.effect}.`) : '',
          h('button', { type: 'button', class: p.needs ? 'danger' : null, onclick: () => apply(Boolean(p.needs)) }, p.needs ? 'Apply, with a new run' : 'Apply'));
      }
    } catch (e) {
      fill(preview, h('p', { role: 'alert', class: 'bad multiline' }, e.message));
    }
  };
  root.append(state);
  if (session.operate) root.append(controls);
  root.append(answer, section('Configuration in effect', h('label', { for: 'yaml' }, 'Keys of the task, the round, the mesh and the predictions'), text,
    session.operate ? h('p', { class: 'buttons' }, h('button', { type: 'button', onclick: compare }, 'Show the changes'),
      h('button', { type: 'button', onclick: () => {
        edited = false;
        loadedFor = null;
        fill(preview);
        update(new Set(['status']));
      } }, 'Discard')) : null, preview), section('Audit log', log));

  const loadTask = async () => {
    try {
      const t = await api('GET', '/v1/task');
      fill(state, facts([['Version', `${t.version}, applied ${clock(t.at)}`], ['Command', t.course], ['Phase', t.phase], ['Run', String(t.run)],
        ['Next version', t.next ? `${t.next.version}, takes effect after the open round` : null]]));
      if (!edited) text.value = t.text;
    } catch (e) {
      fill(state, h('p', { role: 'alert' }, e.message));
    }
  };
  const loadLog = async () => {
    if (!session.named) {
      fill(log, h('p', { class: 'quiet' }, 'The audit log is shown to callers with a token (console.tokens_file).'));
      return;
    }
    try {
      const entries = await api('GET', '/v1/audit?count=100');
      fill(log, table('Audit log', ['Time', 'Event', 'By', 'About'], entries.map((e) => [clock(e.time), e.event, e.who || '', `${e.agent ? `${e.agent} ` : ''}${e.about || ''}`]), 'The audit log is empty.'));
    } catch (e) {
      fill(log, h('p', { class: 'quiet' }, `No audit log: ${e.message}.`));
    }
  };
  const update = (names) => {
    const s = status();
    if (!s || !names.has('status')) return;
    const wanted = `${s.task.version} ${s.task.next} ${s.phase} ${s.ended}`;
    if (wanted === loadedFor) return;
    if (loadedFor === null || loadedFor.split(' ')[0] !== String(s.task.version)) loadLog();
    loadedFor = wanted;
    loadTask();
  };
  return update;
}
