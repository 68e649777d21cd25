// Holds the dashboards against Grafana's own types: writes each as TypeScript, where its texts keep their values, into
// the folder build, and lets tsc compare. Usage: node dashboards.mjs FOLDER-WITH-JSON
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

// The panels that we use, with the types of their options and of fieldConfig.defaults.custom.
const kinds = {
  timeseries: ['timeseries', 'TimeSeries', 'Options', 'FieldConfig'],
  stat: ['stat', 'Stat', 'Options'],
  bargauge: ['bargauge', 'BarGauge', 'Options'],
};

const here = import.meta.dirname;
const source = resolve(process.argv[2]);
const build = join(here, 'build');
rmSync(build, { recursive: true, force: true });
mkdirSync(build);

for (const file of readdirSync(source).filter((name) => name.endsWith('.json'))) {
  const dashboard = JSON.parse(readFileSync(join(source, file), 'utf8'));
  const lines = ["import type { Dashboard } from '@grafana/schema';", "import type { Literal } from '../literal';"];
  for (const [folder, name] of Object.values(kinds)) {
    lines.push(`import type * as ${folder} from '@grafana/schema/dist/esm/raw/composable/${folder}/panelcfg/x/${name}PanelCfg_types.gen';`);
  }
  lines.push(`export const dashboard: Literal<Dashboard> = ${JSON.stringify(dashboard, null, 1)};`);
  for (const panel of dashboard.panels) {
    if (panel.type === 'row') continue;
    const kind = kinds[panel.type];
    if (!kind) throw new Error(`${file}: panel ${panel.id} is a ${panel.type}; add the type of its options to dashboards.mjs`);
    const [folder, , options, custom] = kind;
    lines.push(`export const options${panel.id}: Literal<${folder}.${options}> = ${JSON.stringify(panel.options, null, 1)};`);
    if (custom) {
      lines.push(`export const custom${panel.id}: Literal<${folder}.${custom}> = ${JSON.stringify(panel.fieldConfig.defaults.custom, null, 1)};`);
    }
  }
  writeFileSync(join(build, file.replace('.json', '.ts')), lines.join('\n') + '\n');
}

try {
  execFileSync(process.execPath, [join(here, 'node_modules/typescript/bin/tsc'), '-p', here], { stdio: 'inherit' });
} catch {
  process.exit(1); // tsc has said why
}
