// What the auto-scaler knows; `elasticjob query JOB autoscaling` shows the same.
const belief = { plot: null, shown: null };

function scaling(known) {
  by("autoscaling").hidden = !known.enabled && !known.sizes.some(each => each.samplesPerSecond);
  if (by("autoscaling").hidden) return;
  const fact = into("scaling");
  const state = known.settledSize ? `on, settled at ${known.settledSize}` : "on";
  fact("State", known.enabled ? state : "off, measures only");
  fact("Size", `${known.role} has ${known.size}, may have ${known.minimum} to ${known.maximum} (${known.limit})`);
  if (known.objective) fact("Objective", known.objective);
  const best = known.bestFrom === known.bestTo ? known.bestTo : `${known.bestFrom} to ${known.bestTo}`;
  if (known.bestTo) fact("Best size", `${best}, likelihood at least 90 %`);
  if (known.nodeMembers) fact("Nodes", `have room for ${known.nodeMembers} members each`);
  const due = known.decisionSeconds < 0 ? "" : `, next decision in at most ${span(known.decisionSeconds)}`;
  const measuring = `measuring ${known.size} members: ${percent(known.windowPart)} of the window${due}`;
  fact("Now", known.waitingFor ? `waits for ${known.waitingFor}` : measuring);
  if (known.retryTime) fact("Pause", `no more than ${known.hadSize} could be had; more from ${clock(known.retryTime)} on`);
  if (known.resourcesRetryTime) fact("Pause", `CPU and memory may change from ${clock(known.resourcesRetryTime)} on`);
  if (known.rescaleSeconds) fact("Rescale", `costs ${span(known.rescaleSeconds)} of training`);
  write(by("decided"), known.decided ? `${clock(known.decided)}: ${known.reason}` : "");
  const likely = each => {
    const right = Math.max(0, 1 - each.tooSmall - each.tooLarge);
    const answers = [[right, "about right"], [each.tooSmall, "too small"], [each.tooLarge, "too large"]];
    const [likelihood, text] = answers.sort((one, other) => other[0] - one[0])[0];
    return `${text} (${percent(likelihood)})`;
  };
  table("sizes", ["Size", "Measured", "-Windows", "-Error", "Expected", "Believed to be"], known.sizes.map(each => ({
    cells: [each.size === known.size ? `${each.size} *` : each.size,
      ...(each.samplesPerSecond ? [number(each.samplesPerSecond, 5), each.windows.toFixed(1),
        `${(100 * each.relativeError).toFixed(1)} %`] : ["-", "-", "-"]),
      ...(each.expected ? [`${number(each.expectedFrom, 4)} to ${number(each.expectedTo, 4)}`, likely(each)]
        : ["-", "-"])] })));
  const changed = known.roles.filter(each => each.remark);
  by("roles").hidden = !changed.length;
  table("roles", ["Role", "Most CPU", "Most memory", "CPU and memory"], changed.map(each => ({
    cells: [each.role, number(each.cpuCores), size(Number(each.memoryBytes)), each.remark] })));
  drawBelief(known);
}

// Samples per second by size: the curve with its range of 90 %, and the measured points with their errors.
function drawBelief(known) {
  const drawn = known.curve?.length ? known.curve : known.sizes.filter(each => each.expected);
  const points = known.sizes.filter(each => drawable(each.samplesPerSecond)), target = by("belief");
  target.hidden = !points.length;
  write(by("belief-key"), points.length ? "Samples/s by size. Points: measured. Line and band: expected, with 90 % likelihood."
    + (known.bestTo ? " Shaded: the best size." : "") : "");
  if (!points.length) return;
  const at = new Map(drawn.map(each => [each.size, each]));
  const sizes = [...new Set([...at.keys(), ...points.map(each => each.size), known.size])].sort((one, other) => one - other);
  const of = field => sizes.map(each => drawable(at.get(each)?.[field]));
  const measured = new Map(points.map(each => [each.size, each]));
  belief.shown = { bestFrom: known.bestFrom, bestTo: known.bestTo, points };
  const data = [sizes, of("expectedTo"), of("expectedFrom"), of("expected"), sizes.map(each => measured.get(each)?.samplesPerSecond ?? null)];
  if (!belief.plot) belief.plot = beliefPlot(target, data);
  else belief.plot.setData(data);
}

function beliefPlot(target, data) {
  const none = { show: false }, line = (stroke, more) => ({ stroke, spanGaps: true, points: none, width: 1.5, ...more });
  return new uPlot({
    width: target.clientWidth, height: 190, padding: [8, 10, 0, 0], legend: none,
    cursor: { drag: { x: false, y: false }, points: { size: 6 }, y: false },
    scales: { x: { time: false, range: (_, least, most) => [Math.max(0, least - 0.5), most + 0.5] }, y: { range: BOUNDS.fromZero } },
    axes: [axis({ size: 24, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000], space: 40 }),
      axis({ size: 52, gap: 4, values: (_, splits) => splits.map(axisText) })],
    series: [{}, line("transparent"), line("transparent"), line(color("main")),
      { stroke: color("text"), paths: () => null, points: { show: true, size: 7, fill: color("text"), stroke: color("text") } }],
    bands: [{ series: [1, 2], fill: color("fill") }],
    hooks: { drawClear: [shadeBest], draw: [drawErrors] },
  }, data, target);
}
function shadeBest(plot) {
  const { shown } = belief, { ctx, bbox } = plot;
  if (!shown.bestTo) return;
  const left = Math.max(plot.valToPos(shown.bestFrom - 0.5, "x", true), bbox.left);
  const right = Math.min(plot.valToPos(shown.bestTo + 0.5, "x", true), bbox.left + bbox.width);
  ctx.save();
  ctx.fillStyle = color("grid");
  ctx.fillRect(left, bbox.top, Math.max(0, right - left), bbox.height);
  ctx.restore();
}
function drawErrors(plot) {
  const { ctx } = plot, ratio = devicePixelRatio || 1;
  ctx.save();
  ctx.strokeStyle = color("text");
  ctx.lineWidth = ratio;
  for (const { size, samplesPerSecond, relativeError } of belief.shown.points) {
    const x = plot.valToPos(size, "x", true), error = 1.645 * samplesPerSecond * Math.min(relativeError || 0, 1);
    ctx.beginPath();
    ctx.moveTo(x, plot.valToPos(samplesPerSecond - error, "y", true));
    ctx.lineTo(x, plot.valToPos(samplesPerSecond + error, "y", true));
    ctx.stroke();
  }
  ctx.restore();
}
new ResizeObserver(() => {
  const width = by("belief").clientWidth;
  if (belief.plot && width && belief.plot.width !== width) belief.plot.setSize({ width, height: belief.plot.height });
}).observe(by("belief"));
