// Buttons with data-copy put their text on the clipboard, or select it where the browser allows no clipboard (plain HTTP). Those with
// data-copy-link copy the address of the page.

document.addEventListener("click", async ({ target }) => {
  const button = target.closest("button[data-copy-link]");
  if (!button) return;
  const shown = document.createElement("span");
  shown.textContent = location.href; // as it is now: scripts may have changed it since the page came
  shown.className = "visually-hidden";
  try {
    await navigator.clipboard.writeText(location.href);
    say(button, "Copied", "Copy link");
  } catch {
    button.after(shown);
    getSelection().selectAllChildren(shown);
    say(button, document.execCommand("copy") ? "Copied" : "Copy it from the address bar", "Copy link");
    shown.remove();
  }
  document.getElementById("told").textContent = button.textContent === "Copied" ? "Link copied" : button.textContent;
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const source = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    say(button, "Copied");
  } catch {
    getSelection().selectAllChildren(source);
    say(button, document.execCommand("copy") ? "Copied" : "Selected");
  }
});

function say(button, word, usual = "Copy") {
  button.textContent = word;
  setTimeout(() => { button.textContent = usual; }, 1500);
}
