// The graph of neighbours that exchange parameters (FedDec).
import { h, svg, fill, facts, number, section, table } from './dom.js';
import { status, api } from './store.js';

export const title = 'Neighbours';

const maxDrawn = 200; // number of devices up to which the graph is drawn

export function open(root) {
  const about = h('div');
  const picture = h('div');
  const lists = h('div');
  root.append(about, picture, lists);
  let loadedFor = null;
  const load = async (wanted) => {
    loadedFor = wanted;
    try {
      show(await api('GET', '/v1/neighbours'));
    } catch (e) {
      fill(about, h('p', { role: 'alert' }, e.message));
    }
  };
  const show = (g) => {
    const devices = g.components.flat().concat(g.isolated.filter((id) => !g.components.flat().includes(id)));
    fill(picture);
    fill(lists);
    if (devices.length === 0) {
      fill(about, h('p', { class: 'quiet' }, 'No round with mixing has begun. Devices exchange parameters if round.algorithm is feddec.'));
      return;
    }
    fill(about, facts([
      ['Devices', String(devices.length)], ['Pairs of neighbours', String(g.edges.length)], ['Connected parts', String(g.components.length)],
      ['Second eigenvalue |λ₂|', number(g.second_eigenvalue)], ['Spectral gap 1 − |λ₂|', number(g.spectral_gap)],
      ['Isolated', g.isolated.length ? g.isolated.slice(0, 20).join(', ') : 'none'],
    ]));
    if (g.components.length > 1) {
      about.append(h('p', { class: 'warn' }, 'The graph is not connected: parameters spread only within each part.'));
    }
    if (devices.length <= maxDrawn) fill(picture, draw(g, devices));
    fill(lists, section('Suspended pairs', table('Suspended pairs', ['Devices', 'Reason', 'Through round', 'Distance of the parameters'],
      g.suspended.map((s) => [`${s.a} – ${s.b}`, s.reason, String(s.until), number(s.distance || null)]), 'No pair is suspended.')),
    section('Pairs', table('Pairs of neighbours', ['Device', 'Neighbour', 'Weight'],
      g.edges.slice(0, 500).map((e) => [link(e.a), link(e.b), number(e.weight)]), 'There are no pairs.')));
  };
  return (names) => {
    const s = status();
    if (!s || !names.has('status')) return;
    const wanted = `${s.round} ${JSON.stringify(s.mesh || {})}`;
    if (wanted !== loadedFor) load(wanted);
  };
}

const link = (id) => h('a', { href: `#/devices/${encodeURIComponent(id)}` }, id);

// draw places the devices on a circle, the devices of a part next to each other, and draws an edge thicker with its weight.
function draw(g, devices) {
  const size = 640;
  const radius = size / 2 - 90;
  const place = new Map(devices.map((id, i) => {
    const angle = (2 * Math.PI * i) / devices.length - Math.PI / 2;
    return [id, [size / 2 + radius * Math.cos(angle), size / 2 + radius * Math.sin(angle), angle]];
  }));
  const heaviest = Math.max(...g.edges.map((e) => e.weight), 1e-9);
  const suspended = new Set(g.suspended.map((s) => `${s.a} ${s.b}`));
  const isolated = new Set(g.isolated);
  return svg('svg', { viewBox: `0 0 ${size} ${size}`, class: 'graph', role: 'img',
    'aria-label': `Graph of ${devices.length} devices with ${g.edges.length} pairs of neighbours` },
  g.edges.map((e) => {
    const [x1, y1] = place.get(e.a);
    const [x2, y2] = place.get(e.b);
    return svg('line', { x1, y1, x2, y2, class: suspended.has(`${e.a} ${e.b}`) ? 'suspended' : null,
      'stroke-width': (0.5 + (3 * e.weight) / heaviest).toFixed(2) }, svg('title', {}, `${e.a} – ${e.b}: weight ${number(e.weight)}`));
  }),
  devices.map((id) => {
    const [x, y, angle] = place.get(id);
    const left = Math.cos(angle) < -0.01;
    return svg('g', { class: isolated.has(id) ? 'isolated' : null }, svg('circle', { cx: x, cy: y, r: 5 }, svg('title', {}, id)),
      devices.length > 60 ? null : svg('text', { x: x + (left ? -9 : 9), y: y + 4, 'text-anchor': left ? 'end' : 'start' }, id));
  }));
}
