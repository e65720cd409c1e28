"""Tests of Ctrl-C around calls of RDKit."""

import os
import signal
import threading
import time

import pytest

pytest.importorskip("rdkit")

from rdkit import Chem
from rdkit.Chem import rdDistGeom

from features.chemistry.conformers import interrupts_kept


def test_ctrl_c_works_after_an_embedding() -> None:
    molecule = Chem.AddHs(Chem.MolFromSmiles("CCO"))
    with interrupts_kept():
        rdDistGeom.EmbedMolecule(molecule, rdDistGeom.ETKDGv3())
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_in_a_thread_reaches_the_main_thread() -> None:
    def work() -> None:
        # as RDKit does when it was interrupted
        with pytest.raises(KeyboardInterrupt), interrupts_kept():
            raise KeyboardInterrupt

    thread = threading.Thread(target=work)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        thread.join()
        time.sleep(1)
    thread.join()
