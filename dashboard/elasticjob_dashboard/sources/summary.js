// The job in a line: phase, progress, rates; and what its time went into.
// A master's phase as one of the words of a job's phase, which the list of jobs has, too.
const WORDS = { training: "Running", finishing: "Running", waiting: "Starting", reforming: "Starting" };
const COLORS = { Running: "good", Succeeded: "good", Failed: "bad", Stopped: "", Suspended: "" };

function summary(state) {
  const progress = state.progress, fact = into("facts");
  const name = state.namespace ? `${state.namespace}/${state.job}` : state.job;
  const word = WORDS[state.phase] || state.phase;
  document.title = `${state.job} · ${word}`;
  write(by("title"), name);
  const phase = by("phase");
  write(phase, word);
  phase.hidden = false;
  const stalled = progress.stalledSince && !state.asOf;
  phase.className = `badge ${stalled ? "bad" : COLORS[word] ?? "warn"}`;
  fact("Step", progress.totalSteps ? `${grouped(progress.step)} / ${grouped(progress.totalSteps)}` : grouped(progress.step));
  fact("Throughput", `${number(progress.samplesPerSecond, 4)} samples/s`);
  fact("World size", state.worldSize);
  fact("Round", state.round);
  fact("To go", span(progress.etaSeconds));
  fact("Last report", clock(progress.lastReportTime));
  for (const [metric, value] of Object.entries(progress.metrics)) fact(metric, drawable(value) === null ? "-" : number(value, 5));
  const { began, memberHours, cost, outcome } = state.report || {};
  if (began) {
    fact("Began", moment(began));
    if (outcome?.completed) fact("Ended", moment(outcome.completed));
    fact("Duration", span((outcome?.completed || state.asOf || Date.now() / 1000) - began));
    fact("Member-hours", number(memberHours));
    if (cost) fact("Cost", `${money(cost.amount)} ${cost.currency}`);
  }
  if (stalled) fact("Stalled since", clock(progress.stalledSince), "bad");
  if (progress.stragglers.length) fact("Stragglers", progress.stragglers.map(each => short(each, state.job)).join(", "), "warn");
  if (progress.whyNotReplaced) fact("Not replaced", progress.whyNotReplaced, "warn");
  if (state.masterStarts > 1) fact("Master started", `${state.masterStarts} times`);
  by("bar").hidden = !progress.totalSteps;
  if (progress.totalSteps) by("bar").value = progress.step / progress.totalSteps;
}

const SPENT = [["training", "c-good", "training"], ["starting", "c-main", "starting"], ["waiting", "c-warn", "waiting"],
  ["stalled", "c-bad", "stalled"], ["withoutMaster", "c-second", "without a master"], ["suspended", "c-rest", "suspended"]];

function goodput(report) {
  const spent = SPENT.map(([field, className, name]) => [report.time?.[field] || 0, className, name]);
  // Shares are of the time that counts for the goodput: that while the job was suspended does not.
  const all = spent.reduce((sum, [seconds, , name]) => name === "suspended" ? sum : sum + seconds, 0);
  write(by("goodput"), report.goodput >= 0 ? percent(report.goodput) : "not known");
  parts(by("spent"), spent.map(([seconds, className, name]) => [seconds, className, `${name}: ${span(seconds)}`]));
  const listed = spent.filter(([seconds]) => seconds > 0).map(([seconds, className, name]) =>
    [name === "suspended" ? span(seconds) : `${span(seconds)}, ${percent(seconds / all)}`, className, name]);
  key(by("spent-key"), listed);
  by("spent").setAttribute("aria-label", listed.map(([value, , name]) => `${name} ${value}`).join("; ") || "nothing yet");
  const outcome = report.outcome || {}, restarts = (outcome.restarts || 0) + (outcome.uncountedRestarts || 0);
  write(by("outcome"), [outcome.message, report.advice, restarts ? `${restarts} ${restarts === 1 ? "restart" : "restarts"} of pods` : "",
    ...(outcome.failures || []).slice(0, 3).map(each => `${clock(each.time)} ${each.pod} failed: ${each.reason} ${each.message}`.trim())]
    .filter(Boolean).join(" · "));
}
