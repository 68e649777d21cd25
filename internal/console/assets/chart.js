// A line chart of values by round, drawn by uPlot.
import { h, number } from './dom.js';

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// wholeNumbers are the possible distances between two marks of an axis of versions.
const wholeNumbers = [1, 2, 5].flatMap((n) => [0, 1, 2, 3, 4, 5, 6, 7, 8].map((e) => n * 10 ** e)).sort((a, b) => a - b);

// mark formats the number at a mark of the axis. Marks between powers of ten have no number.
const mark = (x) => (x === null ? '' : x !== 0 && Math.abs(x) < 1e-3 ? x.toExponential(1).replace('.0', '') : number(x));

// lineChart returns an element and a function that shows other data: xs, and for each series {label, values}. Values that
// are null are gaps. The scale is logarithmic if the values are positive and differ by more than a factor of 100.
export function lineChart(label, xLabel) {
  const root = h('div', { class: 'chart', role: 'img', 'aria-label': label });
  let plot = null;
  let shown = ''; // what the plot was made for
  const size = () => ({ width: Math.max(200, root.clientWidth), height: Math.max(160, Math.min(320, root.clientWidth / 2)) });
  const make = (series, logarithmic) => {
    if (plot) plot.destroy();
    const axis = { stroke: colour('--quiet'), grid: { stroke: colour('--line'), width: 1 }, ticks: { stroke: colour('--line') } };
    plot = new window.uPlot({
      ...size(), scales: { x: { time: false }, y: { distr: logarithmic ? 3 : 1 } }, cursor: { drag: { x: true, y: false } },
      axes: [{ ...axis, label: xLabel, labelSize: 20, incrs: wholeNumbers }, { ...axis, size: 64, values: (_, all) => all.map(mark) }],
      series: [{ label: xLabel }, ...series.map((s, i) => ({ label: s.label, stroke: colour(`--series${i + 1}`), width: 2,
        spanGaps: true, value: (_, v) => number(v), points: { show: s.values.filter((v) => v !== null).length < 60 } }))],
    }, [[0]], root);
  };
  const show = (xs, series) => {
    const values = series.flatMap((s) => s.values).filter((v) => v !== null);
    const logarithmic = Math.min(...values) > 0 && Math.max(...values) > 100 * Math.min(...values);
    const wanted = `${series.map((s) => s.label)} ${colour('--line')} ${xs.length < 60} ${logarithmic}`;
    if (wanted !== shown) {
      make(series, logarithmic);
      shown = wanted;
    }
    plot.setData([xs, ...series.map((s) => s.values)]);
    root.dataset.points = String(xs.length);
  };
  new ResizeObserver(() => plot && plot.setSize(size())).observe(root);
  return { root, show };
}
