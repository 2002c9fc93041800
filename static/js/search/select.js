// The trials that are ticked: how many, and what killing them would mean, said before it happens.

const form = document.getElementById("kill-ticked");
const table = document.getElementById("trials");
const boxes = () => [...table.querySelectorAll("input[name=trial]")];
const ticked = () => boxes().filter((box) => box.checked);
const NAMED = 8;

function show() {
  if (!form) return;
  const ids = ticked().map((box) => box.value);
  const kill = form.querySelector("button.danger");
  const count = ids.length === 1 ? "1 trial" : `${ids.length} trials`;
  document.getElementById("ticked").textContent = ids.length ? `${count} selected` : "None selected";
  document.getElementById("tick-all").textContent = ids.length && ids.length === boxes().length ? "Clear selection" : "Select all on this page";
  kill.disabled = !ids.length;
  kill.textContent = ids.length ? `Kill ${count}` : "Kill selected";
  const named = `${ids.slice(0, NAMED).join(", ")}${ids.length > NAMED ? " and others" : ""}`;
  kill.dataset.confirm = `${count} (${named}) ${ids.length === 1 ? "is" : "are"} stopped immediately. Anything not saved is lost; checkpoints are kept. `
    + "The search creates others in their place while it has any left to create.";
}

table.addEventListener("change", show);
table.addEventListener("htmx:afterSwap", show);
document.getElementById("tick-all")?.addEventListener("click", () => {
  const all = boxes();
  const becomes = ticked().length !== all.length;
  for (const box of all) box.checked = becomes;
  show();
});
form?.addEventListener("submit", () => {
  for (const old of form.querySelectorAll("input[name=trial]")) old.remove();
  for (const { value } of ticked()) {
    const input = document.createElement("input");
    Object.assign(input, { type: "hidden", name: "trial", value });
    form.append(input);
  }
});

// What is empty, and columns as they are anyway, need not stand in the address.
document.querySelector("form.trial-view")?.addEventListener("submit", ({ target }) => {
  const columns = [...target.querySelectorAll("input[name=c]")];
  const isUsual = !new URLSearchParams(location.search).has("c") && columns.every((box) => box.checked === box.defaultChecked);
  for (const field of target.elements) {
    if ((field.name === "c" && isUsual) || (field.type === "text" && !field.value.trim())) field.disabled = true;
  }
});
addEventListener("pageshow", () => { for (const field of document.querySelectorAll("form.trial-view :disabled")) field.disabled = false; });

show();
