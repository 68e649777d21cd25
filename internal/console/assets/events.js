// The newest log records of the coordinator.
import { h, fill, clock } from './dom.js';
import { tables } from './store.js';

export const title = 'Events';

const shownAtOnce = 200;

export function open(root) {
  const search = h('input', { type: 'search', id: 'find', oninput: () => show() });
  const level = h('select', { id: 'level', onchange: () => show() }, [['INFO', 'all'], ['WARN', 'warnings and errors'], ['ERROR', 'errors']]
    .map(([v, text]) => h('option', { value: v }, text)));
  const list = h('ol', { class: 'events', reversed: true });
  const more = h('p', { class: 'quiet' });
  root.append(h('p', { class: 'choice' }, h('label', { for: 'find' }, 'Find'), search, h('label', { for: 'level' }, 'Level'), level), list, more);
  const show = () => {
    const levels = ['INFO', 'WARN', 'ERROR'];
    const least = levels.indexOf(level.value);
    const text = search.value.toLowerCase();
    const all = [...tables.log.values()].filter((r) => levels.indexOf(r.level) >= least
      && (!text || `${r.message} ${r.attributes || ''}`.toLowerCase().includes(text)));
    const newest = all.slice(-shownAtOnce).reverse();
    fill(list, newest.map((r) => h('li', { class: { WARN: 'warn', ERROR: 'bad' }[r.level] || null }, h('time', { datetime: r.time }, clock(r.time)),
      h('strong', {}, r.level === 'INFO' ? '' : `${r.level.toLowerCase()} `), r.message, r.attributes ? h('div', { class: 'quiet' }, r.attributes) : null)));
    more.textContent = all.length > newest.length ? `${all.length - newest.length} earlier records are not shown: use Find.` : '';
  };
  return (names) => { if (names.has('log')) show(); };
}
