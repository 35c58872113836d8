// Why the job has failed, and the logs of all members: searched, and saved as a file.
const MOST_FOUND = 1000, LONGEST_LINE = 1000, NOTE = "elasticjob: ", SAVE_SECONDS = 60;
let searching = null, shownFailure = "";
by("logs").hidden = !readsLogs;

// A log that the reader has closed or replaced stays so until another process has failed.
function failedFirst(failure) {
  by("cause").hidden = !failure;
  if (!failure || shownFailure === JSON.stringify(failure)) return;
  shownFailure = JSON.stringify(failure);
  write(by("cause-how"), [`${failure.pod} ${failure.how}`, failure.message].filter(Boolean).join(": "));
  choose(failure.pod, by("cause"));
}

// Reads the lines of all members that have a text, and calls take(member, line). Returns what could not be read.
async function readLogs(find, take, signal) {
  const ranks = new Map(grid.list.map(each => [each.pod, each.rank])), notes = [];
  const answer = await fetch(`logs?find=${encodeURIComponent(find)}`, { headers: authorized(), cache: "no-store", signal });
  if (!answer.ok) throw new Error((await answer.text()).slice(0, 500));
  await readLines(answer.body, line => {
    if (line.startsWith(NOTE)) return notes.push(line.slice(NOTE.length));
    const [pod] = line.split(" ", 1), rank = ranks.get(pod) ?? null;
    take(`[${short(pod, grid.job)}${rank === null ? "" : ` rank ${rank}`}]`, plain(line.slice(pod.length + 1)));
  });
  return notes.join("; ");
}

async function searchLogs(find) {
  searching?.abort();
  const search = searching = new AbortController(), lines = [], members = new Set();
  grid.chosen = "";
  openLog(by("all-of-them"), `“${find}” in the logs of all members`);
  const reading = grid.reading;
  let more = "";
  try {
    more = await readLogs(find, (member, line) => {
      if (lines.length === MOST_FOUND) throw new Error("there are more; save all logs to see them");
      members.add(member);
      lines.push(`${member} ${line.slice(0, LONGEST_LINE)}`);
    }, search.signal);
  } catch (error) {
    more = error.message;
    search.abort();
  }
  if (reading !== grid.reading) return;
  write(by("log-lines"), lines.join("\n"));
  const found = `${lines.length} ${lines.length === 1 ? "line" : "lines"} of ${members.size} ${members.size === 1 ? "member" : "members"}`;
  write(by("log-note"), [found, more].filter(Boolean).join("; "));
}

async function saveLogs() {
  const parts = [], link = document.createElement("a");
  by("save").disabled = true;
  try {
    const missing = await readLogs("", (member, line) => { parts.push(`${member} ${line}\n`); });
    if (missing) parts.push(`${missing}\n`);
    link.href = URL.createObjectURL(new Blob(parts, { type: "text/plain" }));
    link.download = `${grid.job}.log`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), SAVE_SECONDS * 1000);
  } catch (error) {
    openLog(by("all-of-them"), "Logs of all members");
    write(by("log-note"), error.message);
  } finally { by("save").disabled = false; }
}

by("logs").addEventListener("submit", event => {
  event.preventDefault();
  if (by("find").value) searchLogs(by("find").value);
});
by("save").addEventListener("click", saveLogs);
