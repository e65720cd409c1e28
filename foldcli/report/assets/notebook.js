// One structure, drawn by Mol* in a notebook and coloured by the B-factors of its atoms, which are pLDDT.

class NotebookView extends MolstarView {
  constructor(plugin, colours) {
    super(plugin, 15);
    const colour = (plddt) => parseInt(colours.find(([lowest]) => plddt >= lowest || lowest === 0)[2].slice(1), 16);
    this.addColours('plddt', (unit, element) => colour(unit.model.atomicConformation.B_iso_or_equiv.value(element)));
  }

  show(format, text) {
    return this.load(null, format, text, async (builder) => {
      for (const [kind, type] of [['polymer', 'cartoon'], ['non-standard', 'ball-and-stick'], ['ligand', 'ball-and-stick'], ['branched', 'ball-and-stick'], ['ion', 'ball-and-stick']]) {
        const component = await builder.tryCreateComponentStatic(this.structure, kind);
        if (component) await builder.representation.addRepresentation(component, { type, color: 'plddt' });
      }
    });
  }

  frame() { this.plugin.managers.camera.reset(); }
}

(async () => {
  const { format, text, colours, molstar: packed } = JSON.parse(document.getElementById('data').textContent);
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  const script = document.createElement('script');
  script.textContent = await new Response(stream).text();
  document.head.append(script);
  const view = await NotebookView.create(document.getElementById('box'), colours);
  await view.show(format, text);
  document.body.dataset.ready = '';
})().catch((error) => { document.getElementById('box').textContent = `The structure cannot be drawn: ${error.message}.`; });
