// How healthy the data of the devices are, by input. Figures of fewer than five devices are hidden.
import { h, fill, facts, percent, section, table } from './dom.js';
import { tables, api } from './store.js';

export const title = 'Data';

export function open(root) {
  const inputs = h('div');
  const unfit = h('div');
  root.append(section('Unused values by input', inputs), section('Devices whose data do not fit the task', unfit));
  const load = async () => {
    try {
      const d = await api('GET', '/v1/data-health');
      fill(inputs, facts([['Devices that have reported', String(d.devices)]]),
        table('Inputs', ['Input', 'Devices', 'Missing', 'Wrong', 'Frozen'], d.inputs.map((i) => [i.name, `${i.unhealthy} of ${d.devices}`, percent(i.missing), percent(i.wrong), percent(i.frozen)]),
          'No input is unhealthy on five devices or more.'),
        d.hidden ? h('p', { class: 'quiet' }, `${d.hidden} inputs are unhealthy on fewer than five devices. They are hidden here, because their figures could identify a device.`) : null);
    } catch (e) {
      fill(inputs, h('p', { role: 'alert' }, e.message));
    }
  };
  load();
  let last = Date.now();
  return (names) => {
    if (names.has('devices')) {
      const by = new Map();
      for (const d of tables.devices.values()) if (d.column) by.set(d.column, (by.get(d.column) || 0) + 1);
      fill(unfit, table('Columns', ['Column', 'Devices'], [...by].sort(([, a], [, b]) => b - a).map(([column, n]) => [column, String(n)]), 'The data of all devices fit the task.'));
    }
    if (Date.now() - last > 10000) {
      last = Date.now();
      load();
    }
  };
}
