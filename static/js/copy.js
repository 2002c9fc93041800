// Buttons with data-copy put their text on the clipboard, or select it where the browser allows no clipboard (plain HTTP).

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

function say(button, word) {
  button.textContent = word;
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}
