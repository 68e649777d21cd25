// The frame of the console: navigation, login, the state of the connection, and the page in the address.
import { h, fill, duration } from './dom.js';
import { session, link, status, api, loadSession, onChange } from './store.js';
import * as overview from './overview.js';
import * as devices from './devices.js';
import * as neighbours from './neighbours.js';
import * as models from './models.js';
import * as enrolment from './enrolment.js';
import * as task from './task.js';
import * as events from './events.js';

// Each module exports title and open(root, argument), which shows the page and returns update(names). update is called
// after changes of the named tables.
const pages = { overview, devices, neighbours, models, enrolment, task, events };

const main = document.getElementById('main');
const nav = document.getElementById('nav');
let current = { name: '', update: () => {} };

function address() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, '').split('/');
  return { name: Object.hasOwn(pages, name) ? name : 'overview', argument: decodeURIComponent(rest.join('/')) };
}

function show() {
  fill(nav, session.role && !session.absence ? Object.entries(pages).map(([name, page]) => h('a', { href: `#/${name}`,
    'aria-current': name === address().name ? 'page' : null }, page.title)) : []);
  if (session.error) return current.name ? undefined : message('No connection', session.error);
  if (session.absence) return showAbsence();
  if (session.role === '') return showLogin();
  if (session.role === undefined) return undefined;
  const { name, argument } = address();
  const key = `${name}/${argument}`;
  if (current.name === key) return undefined;
  document.title = `${pages[name].title} – fedmesh`;
  fill(main, h('h1', {}, pages[name].title));
  current = { name: key, update: () => {} };
  current.update = pages[name].open(main, argument) || (() => {});
  current.update(new Set(['status', 'devices', 'log']));
  return undefined;
}

function message(title, text) {
  current = { name: '', update: () => {} };
  fill(main, h('h1', {}, title), h('p', { role: 'alert' }, text));
}

// showAbsence names the coordinator that leads, and goes to its console if the address is known.
function showAbsence() {
  message('Nothing to show here', session.absence.reason);
  const url = session.absence.url;
  if (!url) return;
  main.append(h('p', {}, h('a', { href: url }, `Open the console of the leader: ${url}`)));
  if (new URL(url).origin !== location.origin) location.replace(url + location.hash);
}

function showLogin() {
  if (current.name === 'login') return;
  current = { name: 'login', update: () => {} };
  document.title = 'Log in – fedmesh';
  const problem = h('p', { role: 'alert', class: 'bad' });
  const input = h('input', { type: 'password', id: 'token', autocomplete: 'current-password', required: true });
  const logIn = async () => {
    try {
      await api('POST', '/v1/session', { token: input.value.trim() });
      current = { name: '', update: () => {} };
      await loadSession();
    } catch (e) {
      problem.textContent = e.message;
      input.select();
    }
  };
  fill(main, h('h1', {}, 'Log in'),
    h('form', { class: 'login', onsubmit: (e) => { e.preventDefault(); logIn(); } },
      h('label', { for: 'token' }, 'Token'), input, h('button', { type: 'submit' }, 'Log in'), problem,
      h('p', { class: 'quiet' }, 'The tokens are in the file console.tokens_file on the coordinator.')));
  input.focus();
}

function showHead() {
  const s = status();
  document.getElementById('federation').textContent = s ? s.federation : '';
  const state = document.getElementById('link');
  const texts = { live: 'live', connecting: 'connecting …', paused: 'paused', lost: `no connection for ${duration((Date.now() - link.since) / 1000)}` };
  if (state.textContent !== texts[link.state]) state.textContent = session.role ? texts[link.state] : '';
  state.className = link.state;
  fill(document.getElementById('who'), session.role ? [session.name, session.operate ? '' : ' (read only)'] : [],
    session.role && session.login ? h('button', { type: 'button', onclick: async () => {
      await api('DELETE', '/v1/session');
      location.reload();
    } }, 'Log out') : []);
}

window.addEventListener('hashchange', () => {
  show();
  main.focus();
});
onChange((names) => {
  if (names.has('session')) show();
  if (names.has('session') || names.has('link') || names.has('status')) showHead();
  const began = performance.now();
  current.update(names);
  // Tests read the longest update.
  const took = performance.now() - began;
  if (took > Number(document.body.dataset.longestUpdate || 0)) document.body.dataset.longestUpdate = String(took);
});
setInterval(() => {
  showHead();
  current.update(new Set(['time']));
}, 1000);
loadSession();
