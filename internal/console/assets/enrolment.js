// How devices join: tokens with QR code, tokens that have not expired, the key in use.
import { h, svg, fill, facts, clock, command, section, table, duration } from './dom.js';
import { session, api } from './store.js';

export const title = 'Enrolment';

export function open(root, replaced) {
  const state = h('div');
  const tokens = h('div');
  const made = h('div', { role: 'status' });
  root.append(state);
  const join = section(replaced ? `New key for ${replaced}` : 'New device', form(replaced, made, () => load()), made);
  join.hidden = true;
  root.append(join, section('Tokens that have not expired', tokens));
  const load = async () => {
    try {
      const e = await api('GET', '/v1/enrolment');
      fill(state, facts([
        ['Enrolled devices', String(e.devices)], ['Key of the coordinator in use', h('code', {}, e.coordinator_key)],
        ['Root document', e.root ? `version ${e.root}` : null], ['Certificates of devices', e.certificate_hours ? `valid for ${duration(3600 * e.certificate_hours)}` : null],
        ['Open enrolment', e.open_until ? `any device may join until ${clock(e.open_until)}` : 'closed'],
      ]));
      join.hidden = !e.enabled || !session.operate;
      if (!e.enabled) state.append(h('p', { class: 'warn' }, 'Devices cannot join with a token, because enrol.listen is not set.'));
      if (e.open_until && session.operate) {
        state.append(h('p', {}, h('button', { type: 'button', onclick: async () => {
          await api('POST', '/v1/tokens/close', {});
          load();
        } }, 'Close open enrolment')));
      }
      fill(tokens, table('Tokens', ['Device', 'Replaces', 'Issued', 'Expires', 'State'], e.tokens.map((t) => [t.device || 'any device', t.replaces || '–',
        clock(t.issued), clock(t.expires), t.used ? 'used' : 'waiting for the device']), 'There are no tokens.'));
    } catch (e) {
      fill(state, h('p', { role: 'alert' }, e.message));
    }
  };
  load();
  let last = Date.now();
  return (names) => {
    if (names.has('devices') && Date.now() - last > 5000) {
      last = Date.now();
      load();
    }
  };
}

function form(replaced, made, reload) {
  const device = h('input', { id: 'device', required: true, value: replaced || '', readonly: Boolean(replaced), autocomplete: 'off' });
  const ttl = h('select', { id: 'ttl' }, [['1h', '1 hour'], ['24h', '1 day'], ['168h', '1 week']].map(([v, text]) => h('option', { value: v }, text)));
  ttl.value = '24h';
  return h('form', { class: 'choice', onsubmit: async (event) => {
    event.preventDefault();
    try {
      const t = await api('POST', '/v1/tokens', { device: device.value.trim(), replaces: replaced || undefined, ttl: ttl.value });
      fill(made, h('p', {}, `Run this command once on ${device.value}, before ${clock(t.expires)}. It is shown only now.`), h('p', {}, command(t.command)), qr(t.qr));
      reload();
    } catch (e) {
      fill(made, h('p', { class: 'bad' }, e.message));
    }
  } }, h('label', { for: 'device' }, 'Id of the device'), device, h('label', { for: 'ttl' }, 'Valid for'), ttl, h('button', { type: 'submit' }, 'Create a token'));
}

// qr draws a QR code with a margin of four modules. Rows are texts of 0 and 1.
function qr(rows) {
  const size = rows.length + 8;
  const path = rows.flatMap((row, y) => [...row].map((m, x) => (m === '1' ? `M${x + 4} ${y + 4}h1v1h-1z` : ''))).join('');
  return svg('svg', { viewBox: `0 0 ${size} ${size}`, class: 'qr', role: 'img', 'aria-label': 'The command as a QR code', 'shape-rendering': 'crispEdges' },
    svg('rect', { width: size, height: size, fill: '#fff' }), svg('path', { d: path, fill: '#000' }));
}
