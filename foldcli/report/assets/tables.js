// Long tables and sequences show their first rows and a button for the rest; wide tables say that they can be scrolled.

const FIRST_ROWS = 12;
// pixels, as in the style sheet
const SEQUENCE_HEIGHT = 320;

// a button after a box that shows all of it, or only its first rows
function addButton(box, cut, all, few) {
  const button = Object.assign(document.createElement('button'), { type: 'button', className: 'all-rows' });
  const show = (isCut) => {
    cut.classList.toggle('cut', isCut);
    button.textContent = isCut ? all : few;
    button.setAttribute('aria-expanded', String(!isCut));
  };
  button.addEventListener('click', () => {
    show(!cut.classList.contains('cut'));
    button.scrollIntoView({ block: 'nearest' });
  });
  show(true);
  box.after(button);
}

for (const box of document.querySelectorAll('.scroll')) {
  const table = box.querySelector('table'), count = table.tBodies[0].rows.length;
  const cue = Object.assign(document.createElement('p'), { className: 'cue', textContent: 'Scroll sideways for more columns →', hidden: true });
  box.before(cue);
  const showSides = () => {
    const hidden = box.scrollWidth - box.clientWidth;
    box.classList.toggle('more-left', box.scrollLeft > 1);
    box.classList.toggle('more-right', box.scrollLeft < hidden - 1);
    cue.hidden = hidden <= 1;
  };
  box.addEventListener('scroll', showSides, { passive: true });
  const observer = new ResizeObserver(showSides);
  observer.observe(box);
  observer.observe(table);
  // the index lists all targets; a button for one or two rows would not save any space
  if (table.id === 'targets' || count <= FIRST_ROWS + 2) continue;
  addButton(box, table, `Show all ${count} rows`, `Show the first ${FIRST_ROWS} rows only`);
}

const letterBox = document.querySelector('.sequence');
if (letterBox && letterBox.scrollHeight > 1.3 * SEQUENCE_HEIGHT) {
  addButton(letterBox, letterBox, `Show all ${letterBox.querySelectorAll('b').length} residues`, 'Show the first residues only');
}
