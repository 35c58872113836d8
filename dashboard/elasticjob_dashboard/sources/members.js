// The members: a cell and a row each, and the last log lines of the chosen one.
const COLUMNS = [
  ["Pod", each => each.pod], ["Rank", each => each.rank], ["State", each => each.state],
  ["Step", each => each.step, "minor"], ["Step time", each => each.stepSeconds], ["CPU", each => each.cpuCores],
  ["Memory", each => each.memoryBytes], ["GPU", each => each.gpuPercent, "minor"],
  ["Restarts", each => each.restarts, "", "Restarts of its process in this pod"],
  ["Earlier pods", each => each.earlierPods, "minor", "Pods that this index had before: each failed or was replaced"], ["Node", each => each.node, "minor"],
];
const grid = { list: [], rows: new Map(), cells: new Map(), by: 1, falling: false, all: false, chosen: "", job: "", namespace: "", reading: 0 };
const readsLogs = document.documentElement.dataset.logs === "yes";
const LOG_SECONDS = 5, MOST_ROWS = 100;

function members(found, job, namespace) {
  Object.assign(grid, { list: found.list, job, namespace });
  const counts = Object.entries(found.counts).map(([name, count]) => `${count} ${name}`).join(", ");
  const more = Object.values(found.counts).reduce((sum, count) => sum + count, 0) - found.list.length;
  write(by("counts"), more ? `${counts}; ${more} of them are not listed` : counts || "none");
  drawMembers();
}

function drawMembers() {
  const wanted = by("filter").value.trim().toLowerCase();
  const matches = each => !wanted || `${each.pod} ${each.state} ${each.node}`.toLowerCase().includes(wanted)
    || (each.straggler && "straggler".includes(wanted));
  const listed = sorted(grid.list.filter(matches), COLUMNS, grid);
  const most = field => Math.max(...grid.list.map(each => each[field] || 0), 0);
  const tops = { stepSeconds: most("stepSeconds"), cpuCores: most("cpuCores"), memoryBytes: most("memoryBytes") };
  const body = memberTable(), rows = grid.all ? listed : listed.slice(0, MOST_ROWS);
  by("all-members").hidden = rows.length === listed.length;
  write(by("all-members"), `Show all ${listed.length}`);
  keep(grid.rows, rows, "pod", body, () => memberRow(body), (row, each) => fillRow(row, each, tops));
  const cells = by("cells"), many = listed.length > 8 ? listed : [];
  keep(grid.cells, many, "pod", cells, () => put(cells, "i"), (cell, each) => {
    mark(cell, `${each.state}${each.straggler ? " slow" : ""}${each.pod === grid.chosen ? " chosen" : ""}`);
    cell.dataset.pod = each.pod;
    const title = `${each.pod}: ${each.state}`;
    if (cell.title !== title) cell.title = title;
  });
}

function memberTable() {
  const target = by("members");
  if (target.tBodies[0]) return target.tBodies[0];
  heads(target, COLUMNS, grid, drawMembers);
  return put(target, "tbody");
}
function memberRow(body) {
  const row = put(body, "tr");
  COLUMNS.forEach(([, , minor], column) => {
    const cell = put(row, "td", undefined, `${minor || ""}${column === 2 ? "" : " short-text"}`);
    if (column === 0) put(cell, "button").type = "button";
    if (column === 2) put(cell, "span");
  });
  return row;
}
function fillRow(row, each, tops) {
  const [pod, rank, doing, step, time, cpu, memory, gpu, restarts, earlier, node] = row.cells;
  row.dataset.pod = each.pod;
  row.classList.toggle("chosen", each.pod === grid.chosen);
  write(pod.firstChild, short(each.pod, grid.job));
  pod.firstChild.title = each.pod;
  write(rank, each.rank ?? "-");
  write(doing.firstChild, each.straggler ? `${each.state}, straggler` : each.problem ? `${each.state}: ${each.problem}` : each.state);
  mark(doing.firstChild, `state ${each.state}${each.straggler || each.problem ? " warn" : ""}`);
  write(step, grouped(each.step));
  measure(time, each.stepSeconds ? `${number(each.stepSeconds)} s` : "-", each.stepSeconds / tops.stepSeconds);
  measure(cpu, number(each.cpuCores), each.cpuCores / tops.cpuCores);
  measure(memory, size(each.memoryBytes), each.memoryBytes / tops.memoryBytes);
  write(gpu, [each.gpuPercent ? `${each.gpuPercent} %` : "", each.gpuMemoryBytes ? size(each.gpuMemoryBytes) : ""].filter(Boolean).join(", ") || "-");
  write(restarts, each.restarts ?? "-");
  write(earlier, each.earlierPods ?? "-");
  write(node, each.node);
}
// A value with a bar behind it, relative to the largest one among the members.
function measure(cell, text, part) {
  write(cell, text);
  cell.classList.add("measure");
  const length = Number.isFinite(part) ? (part * 0.9).toFixed(2) : "0";
  if (cell.dataset.part === length) return;
  cell.dataset.part = length;
  cell.style.setProperty("--part", length);
}

// Opens the log of a pod below the members, or in another panel.
function choose(pod, place = by("all-of-them")) {
  grid.chosen = pod;
  openLog(place, pod ? `Log of ${pod}` : "");
  if (!pod) return;
  if (readsLogs) readLog(grid.reading);
  else write(by("log-note"), "The job's master may not read logs. `elasticjob dashboard` shows them here; or run: "
    + `kubectl logs -n ${grid.namespace} ${pod} --tail=200`);
}
function openLog(place, title) {
  grid.reading += 1;
  place.append(by("log"));
  by("log").hidden = !title;
  write(by("log-title"), title);
  write(by("log-lines"), "");
  by("log-lines").hidden = !readsLogs;
  write(by("log-note"), "Reading …");
  drawMembers();
}
async function readLog(reading) {
  const pod = grid.chosen, shown = by("log-lines");
  let found;
  try {
    const answer = await fetch(`log?pod=${encodeURIComponent(pod)}`, { headers: authorized(), cache: "no-store" });
    if (!answer.ok) throw new Error(`the answer is ${answer.status}`);
    found = await answer.json();
  } catch (error) {
    found = { lines: null, problem: `The log cannot be read now: ${error.message}` };
  }
  if (reading !== grid.reading) return;
  const atEnd = shown.scrollTop + shown.clientHeight >= shown.scrollHeight - 20;
  if (found.lines) write(shown, plain(found.lines.join("\n")));
  if (atEnd) shown.scrollTop = shown.scrollHeight;
  write(by("log-note"), found.problem || (found.lines.length ? `The last ${found.lines.length} lines, read at ${clock(Date.now() / 1000)}`
    : "Nothing is written yet."));
  setTimeout(() => { if (reading === grid.reading && !document.hidden) readLog(reading); }, LOG_SECONDS * 1000);
}
// Colors and other control sequences of terminals are no text.
const plain = text => text.replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, "");

by("members").addEventListener("click", event => {
  const row = event.target.closest("tbody tr");
  if (row && !getSelection().toString()) choose(row.dataset.pod === grid.chosen ? "" : row.dataset.pod);
});
by("members").addEventListener("keydown", event => {
  const move = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  const next = move && event.target.closest("tbody tr")?.[move];
  if (!next) return;
  event.preventDefault();
  next.querySelector("button").focus();
});
by("cells").addEventListener("click", event => { if (event.target.dataset.pod) choose(event.target.dataset.pod); });
by("filter").addEventListener("input", drawMembers);
by("all-members").addEventListener("click", () => {
  grid.all = true;
  drawMembers();
});
by("log-close").addEventListener("click", () => choose(""));
document.addEventListener("keydown", event => { if (event.key === "Escape" && grid.chosen) choose(""); });
document.addEventListener("visibilitychange", () => { if (!document.hidden && grid.chosen && readsLogs) readLog(++grid.reading); });
