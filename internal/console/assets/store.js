// The state of the page: the rows of the coordinator's tables, kept up to date by server-sent events, and the session.

export const tables = { status: new Map(), devices: new Map(), log: new Map() };
export const session = {};
// link tells whether the page is up to date.
export const link = { state: 'connecting', since: Date.now() };

const listeners = new Set();

// onChange calls listener(names) after changes, with the names of the changed tables, at most once per frame. It returns
// a function that ends this.
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const changed = new Set();
let scheduled = false;

export function notify(name) {
  changed.add(name);
  if (scheduled) return;
  scheduled = true;
  const call = () => {
    scheduled = false;
    const names = new Set(changed);
    changed.clear();
    for (const listener of [...listeners]) listener(names);
  };
  // A hidden page has no frames.
  if (document.hidden) setTimeout(call, 200); else requestAnimationFrame(call);
}

export const status = () => tables.status.get('status') || null;

// api sends a request to the coordinator and returns the decoded response. It throws an Error with the problem that the
// coordinator reports.
export async function api(method, path, body) {
  let response;
  try {
    response = await fetch(path, { method, headers: body === undefined ? {} : { 'Content-Type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body), credentials: 'same-origin' });
  } catch {
    throw new Error('the coordinator does not answer');
  }
  const answer = await response.json().catch(() => ({}));
  if (response.status === 401 && path !== '/v1/session') loadSession();
  if (!response.ok) throw new Error(answer.problem || `the coordinator answered with status ${response.status}`);
  return answer;
}

let source = null; // open event stream
let position = ''; // position after which the stream continues

export async function loadSession() {
  try {
    Object.assign(session, { absence: undefined }, await api('GET', '/v1/session'), { error: undefined });
  } catch (e) {
    session.error = e.message;
  }
  if (session.role && !session.absence && !session.error) {
    open();
  } else {
    close();
    if (session.error) setLink('lost');
  }
  notify('session');
  if (session.absence || session.error) setTimeout(loadSession, 2000);
}

function setLink(state) {
  if (link.state !== state) Object.assign(link, { state, since: Date.now() });
  notify('link');
}

function close() {
  if (source) source.close();
  source = null;
}

// open follows the tables. A stream that has ended continues after the last position, so that a browser that slept
// catches up.
function open() {
  if (source || document.hidden) return;
  const stream = new EventSource(`/v1/feed?after=${encodeURIComponent(position)}`);
  source = stream;
  stream.addEventListener('reset', () => {
    for (const [name, rows] of Object.entries(tables)) {
      rows.clear();
      notify(name);
    }
  });
  stream.addEventListener('rows', (e) => {
    const { table, rows } = JSON.parse(e.data);
    const known = tables[table];
    if (!known) return;
    for (const [key, row] of Object.entries(rows)) {
      if (row === null) known.delete(key); else known.set(key, row);
    }
    notify(table);
  });
  stream.addEventListener('current', (e) => {
    position = e.lastEventId;
    setLink('live');
  });
  stream.addEventListener('error', () => {
    // The session decides how to continue: the coordinator may have restarted, or another one may lead.
    if (source !== stream) return;
    close();
    setLink('lost');
    setTimeout(loadSession, 1000);
  });
}

// A hidden page is disconnected, so that the coordinator does no work for it.
document.addEventListener('visibilitychange', () => {
  if (document.hidden) {
    close();
    setLink('paused');
  } else {
    loadSession();
  }
});
