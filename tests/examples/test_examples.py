"""The example proteins: lengths, masses, and conserved residues of their families."""

import hashlib
import re
from itertools import pairwise

import pytest
from Bio.SeqUtils import molecular_weight

STANDARD = set("ACDEFGHIKLMNPQRSTVWY")
MIN_MEMBERS = {
    "ubiquitin": 20,
    "globin": 25,
    "lysozyme": 10,
    "cytochrome c": 15,
    "thioredoxin": 6,
    "glutaredoxin": 4,
    "protein G": 5,
    "GA module": 2,
    "protein L": 1,
    "protein A": 5,
    "other": 10,
}
MYOGLOBIN_MET = 1  # the initiator Met is residue 0 in the numbering that the literature uses

# SHA-256 of the sorted lines "id sequence"; every residue has been compared with public copies
COMPARED_SHA256 = "bcd21a11308ac729c729875a8dc6577ad30e32a2f05b29967ffe0595decbe99a"

# published average masses (Da) of the chains in the file, without ligands and reduced: UniProt's, or a
# measured mass with 1.008 Da added for each cysteine in a disulfide bond
MASSES = {
    "UBIQ_HUMAN": 8564.8,
    "NEDD8_HUMAN": 9072,
    "SUMO1_HUMAN": 11557,
    "SMT3_YEAST": 11597,
    "ISG15_HUMAN": 17888,
    "RS27A_HUMAN": 17965,
    "RL40_HUMAN": 14728,
    "RS30_HUMAN": 14390,
    "ELOB_HUMAN": 13133,
    "ATG8_YEAST": 13627,
    "GBRAP_HUMAN": 13918,
    "MYG_PHYMC": 17331,
    "MYG_HUMAN": 17184,
    "HBA_HUMAN": 15258,
    "HBB_HUMAN": 15998,
    "HBD_HUMAN": 16055,
    "HBG1_HUMAN": 16140,
    "NGB_HUMAN": 16933,
    "LYSC_CHICK": 14313,
    "LYSC_HUMAN": 14701,
    "LALBA_HUMAN": 14078,
    "LALBA_BOVIN": 14186,
    "CYC_HUMAN": 11749,
    "CYC_HORSE": 11833,
    "THIO_ECOLI": 11807,
    "THIO_HUMAN": 11738,
    "SPG1_STRSG_B1": 6196,
    "INS_HUMAN": 11981,
    "RNAS1_BOVIN": 13690.3,
    "BPT1_BOVIN": 6517.5,
    "CALM1_HUMAN": 16838,
    "FKB1A_HUMAN": 11951,
    "PPIA_HUMAN": 18012,
    "CSPA_ECOLI": 7403,
    "ENLYS_BPT4": 18691,
    "NUC_STAAU": 16811,
    "GFP_AEQVI": 26886,
}


def positions(letter: str, sequence: str) -> list[int]:
    """Return the positions of a letter, from 1."""
    return [i for i, residue in enumerate(sequence, 1) if residue == letter]


def differences(first: str, second: str) -> set[str]:
    """Return the substitutions between two sequences of equal length, such as I6V."""
    pairs = enumerate(zip(first, second, strict=True), 1)
    return {f"{a}{i}{b}" for i, (a, b) in pairs if a != b}


def test_records_have_standard_residues_in_lines_of_60(examples_dir, records, queries):
    for record in (*records, *queries.values()):
        assert set(record.sequence) <= STANDARD, record.id
    for path in examples_dir.glob("*.fasta"):
        text = path.read_bytes().decode("ascii")
        assert text.endswith("\n")
        assert "\r" not in text
        for line, following in pairwise(text.splitlines()):
            assert line, path
            if not line.startswith(">") and not following.startswith(">"):
                assert len(line) == 60, path


def test_headers_state_the_form_of_the_chain(records):
    stated = r"(mature|precursor|full length|domain|domain with added Met|with initiator Met)"
    form = re.compile(rf"\w+ .+, .+, {stated}( \(UniProt [A-Z0-9]{{6}}\))?")
    for record in records:
        assert form.fullmatch(record.header), record.header
        assert (", with initiator Met" not in record.header) or record.sequence.startswith("M")


def test_sequences_are_unchanged(records):
    lines = "\n".join(sorted(f"{record.id} {record.sequence}" for record in records))
    assert hashlib.sha256(lines.encode()).hexdigest() == COMPARED_SHA256


def test_ids_and_sequences_are_unique_and_families_complete(records, demo, families):
    assert len(records) >= 80
    assert len(demo) == len(records)
    assert len(set(demo.values())) == len(records)
    for family, count in MIN_MEMBERS.items():
        assert len(families[family]) >= count, family


def test_each_query_is_in_the_database(queries, demo):
    for record in queries.values():
        assert demo[record.id] == record.sequence


@pytest.mark.parametrize(
    ("name", "length"), [("ubiquitin", 76), ("myoglobin", 154), ("lysozyme", 129), ("gb1", 56)]
)
def test_length(queries, name, length):
    assert len(queries[name].sequence) == length


@pytest.mark.parametrize("name", MASSES)
def test_mass(demo, name):
    assert molecular_weight(demo[name], "protein") == pytest.approx(MASSES[name], abs=1)


def test_masses_of_processed_chains(demo):
    assert molecular_weight(demo["MYG_HORSE"][1:], "protein") == pytest.approx(16951.5, abs=0.5)
    assert molecular_weight(demo["HBA_HUMAN"][1:], "protein") == pytest.approx(15126.4, abs=0.5)
    assert molecular_weight(demo["HBB_HUMAN"][1:], "protein") == pytest.approx(15867.2, abs=0.5)
    # horse cytochrome c as measured, 12360: N-acetylated (+42.0), haem c bound (+616.5)
    assert molecular_weight(demo["CYC_HORSE"][1:], "protein") + 42.0 + 616.5 == pytest.approx(12360, abs=1)
    # insulin, 5807.6: chains B (residues 25-54) and A (90-110), three disulfides
    precursor = demo["INS_HUMAN"]
    chains = [precursor[24:54], precursor[89:110]]
    bonded = sum(molecular_weight(chain, "protein") for chain in chains) - 6 * 1.008
    assert bonded == pytest.approx(5807.6, abs=0.5)


def test_ubiquitin(demo):
    human = demo["UBIQ_HUMAN"]
    assert positions("K", human) == [6, 11, 27, 29, 33, 48, 63]
    assert [human[i - 1] for i in (8, 44, 70)] == list("LIV")  # the hydrophobic patch
    assert not set("CW") & set(human)
    for name, sequence in demo.items():
        if name.startswith("UBIQ_"):
            assert len(sequence) == 76, name
            assert sequence.endswith("LRLRGG"), name
            assert positions("K", human) == [i for i in positions("K", sequence) if i != 28], name
    assert differences(human, demo["UBIQ_YEAST"]) == {"P19S", "E24D", "A28S"}
    for name, species in (
        ("RS27A_HUMAN", "UBIQ_HUMAN"),
        ("RL40_HUMAN", "UBIQ_HUMAN"),
        ("RS27A_YEAST", "UBIQ_YEAST"),
        ("RL40A_YEAST", "UBIQ_YEAST"),
    ):
        assert demo[name].startswith(demo[species]), name


def test_ubiquitin_like_proteins_end_in_gly_gly(demo):
    assert demo["NEDD8_HUMAN"][70:76] == "LALRGG"
    assert demo["RUB1_YEAST"][70:76] == "LTLRGG"
    assert demo["ISG15_HUMAN"][151:157] == "LRLRGG"
    for name, glycine in (("SUMO1_HUMAN", 97), ("SUMO2_HUMAN", 93), ("SUMO3_HUMAN", 92), ("SMT3_YEAST", 98)):
        assert demo[name][glycine - 2 : glycine] == "GG", name
    assert demo["URM1_YEAST"].endswith("GG")
    assert demo["ATG8_YEAST"][115] == "G"
    assert demo["GBRAP_HUMAN"][115] == "G"


def test_sperm_whale_myoglobin(demo):
    whale = demo["MYG_PHYMC"]
    assert [whale[i - 1 + MYOGLOBIN_MET] for i in (43, 64, 93, 122)] == list("FHHD")
    assert positions("W", whale[MYOGLOBIN_MET:]) == [7, 14]
    assert "C" not in whale


def test_haem_pocket_of_vertebrate_globins(records):
    # Phe CD1, distal His E7 and proximal His F8, at their published numbers
    pockets = {"MYG": (43, 64, 93), "HBA": (43, 58, 87), "HBB": (42, 63, 92)}
    checked = 0
    for record in records:
        kind = "HBB" if re.match(r"HB(B1?|D|E|G\d)_", record.id) else record.id[:3]
        if kind not in pockets or record.id == "MYG_THUAL":  # tuna's chain has deletions before Phe CD1
            continue
        first = 0 if "with initiator Met" in record.header else 1  # number of the first residue
        if record.id == "HBB_BOVIN":
            first = 2  # beta chains of cattle lack residue 1
        assert [record.sequence[i - first] for i in pockets[kind]] == list("FHH"), record.id
        checked += 1
    assert checked >= 20


def test_proximal_histidine_of_other_globins(demo):
    # published numbers: from the initiator Met in human chains, from the mature chain in others
    proximal = {
        "HBAZ_HUMAN": 88,  # 87 without Met
        "NGB_HUMAN": 96,
        "GLB5_PETMA": 105,
        "LGB2_LUPLU": 97,
        "LGBA_SOYBN": 93,  # 92 without Met
        "GLB_APLLI": 95,
        "GLB3_CHITP": 87,
        "GLB1_GLYDI": 90,
        "BAHG_VITSP": 85,
    }
    assert {name: demo[name][number - 1] for name, number in proximal.items()} == dict.fromkeys(proximal, "H")
    distal = {"NGB_HUMAN": 64, "GLB5_PETMA": 73, "LGB2_LUPLU": 63, "GLB3_CHITP": 58}
    assert {name: demo[name][number - 1] for name, number in distal.items()} == dict.fromkeys(distal, "H")


def test_lysozymes(demo, families):
    hen = demo["LYSC_CHICK"]
    assert positions("C", hen) == [6, 30, 64, 76, 80, 94, 115, 127]
    assert [hen[i - 1] for i in (35, 52, 62, 63, 108)] == list("EDWWW")
    human = demo["LYSC_HUMAN"]
    assert positions("C", human) == [6, 30, 65, 77, 81, 95, 116, 128]
    assert [human[i - 1] for i in (35, 53)] == list("ED")
    assert {len(demo[name]) for name in families["lysozyme"]} == {123, 129, 130}
    for name, sequence in families["lysozyme"].items():
        assert sequence.count("C") == 8, name
        if name.startswith("LYSC"):
            assert sequence[34] == "E", name
            assert re.search(r"[ST]DYG", sequence).start() + 2 in (52, 53), name
    # substitutions in other birds
    assert differences(hen, demo["LYSC_COLVI"]) == {"T40S", "I55V", "R68K", "S91T"}
    assert differences(hen, demo["LYSC_COTJA"]) == {"F3Y", "N19K", "R21Q", "G102V", "N103H", "Q121N"}
    assert differences(hen, demo["LYSC_MELGA"]) == {"F3Y", "H15L", "Q41H", "R73K", "V99A", "D101G", "Q121H"}


def test_alpha_lactalbumins(families):
    lactalbumins = {name: s for name, s in families["lysozyme"].items() if name.startswith("LALBA")}
    assert len(lactalbumins) >= 2
    for name, sequence in lactalbumins.items():
        assert positions("C", sequence) == [6, 28, 61, 73, 77, 91, 111, 120], name
        assert [sequence[i - 1] for i in (79, 82, 84, 87, 88)] == list("KDDDD"), name  # the calcium site


def test_cytochromes_c(demo, families):
    for name, sequence in families["cytochrome c"].items():
        assert len(re.findall(r"C..CH", sequence)) == 1, name
        assert "M" in sequence[sequence.index("CH") + 40 :], name  # the sixth ligand of the iron
        if name != "CY551_PSEAE":
            assert "NPKKYIPGTKM" in sequence, name
    horse = demo["CYC_HORSE"][1:]
    assert [horse[i - 1] for i in (14, 17, 18, 59, 80)] == list("CCHWM")
    assert demo["CY551_PSEAE"][60] == "M"
    assert differences(demo["CYC_HUMAN"], demo["CYC_MACMU"]) == {"I59T"}


def test_thioredoxins_and_glutaredoxins(demo, families):
    for name, sequence in families["thioredoxin"].items():
        assert ("CPHC" if name == "DSBA_ECOLI" else "WCGPC") in sequence, name
    active = {"GLRX_BPT4": "CVYC"}
    for name, sequence in families["glutaredoxin"].items():
        assert active.get(name, "CPYC") in sequence, name
        assert re.search(r"[TM]VPQ[IV]F|TVP[RN][VI][FY]|TMPQVF", sequence), name  # cis-Pro
    coli = demo["THIO_ECOLI"][1:]
    assert len(coli) == 108
    assert [coli[i - 1] for i in (26, 28, 31, 32, 35, 57, 76)] == list("DWWCCKP")
    assert [demo["THIO_HUMAN"][i - 1] for i in (32, 35, 62, 69, 73)] == list("CCCCC")


def test_protein_g(demo):
    first, second, third = (demo[f"SPG{name}"] for name in ("1_STRSG_B1", "2_STRSG_C2", "1_STRSG_B2"))
    assert not set("CHPRS") & set(first)
    assert [first[i - 1] for i in (43, 45, 52)] == list("WYF")
    assert differences(first[1:], third) == {"I5V", "L6I", "E18K", "A23E", "V28A", "E41V"}
    assert differences(first[1:], second) == {"I5V", "L6I"}
    assert len(demo["SPG1_STRSG"]) == 448
    assert len(demo["SPG2_STRSG"]) == 593
    assert all(part in demo["SPG1_STRSG"] for part in (first[2:], third))
    assert all(part in demo["SPG2_STRSG"] for part in (first[1:], second, third, demo["SPG2_STRSG_GA3"]))
    assert all(demo[name].count("LPTTGE") == 1 for name in ("SPG1_STRSG", "SPG2_STRSG"))  # cell-wall anchor


def test_other_surface_proteins(families):
    for name, sequence in families["protein A"].items():
        assert 56 <= len(sequence) <= 61, name
        assert re.search(r"QQ[NS]AFY.*RN?G?.*FIQSLKDDPS", sequence), name
        assert sequence.endswith("APK"), name
    for name, sequence in families["GA module"].items():
        assert "NNAKTVEGV" in sequence or "NKAKTVEEV" in sequence, name


def test_unrelated_proteins(demo):
    assert positions("C", demo["RNAS1_BOVIN"]) == [26, 40, 58, 65, 72, 84, 95, 110]
    assert [demo["RNAS1_BOVIN"][i - 1] for i in (12, 41, 119)] == list("HKH")
    assert positions("C", demo["BPT1_BOVIN"]) == [5, 14, 30, 38, 51, 55]
    assert positions("K", demo["BPT1_BOVIN"]) == [15, 26, 41, 46]
    assert positions("C", demo["CRAM_CRAAB"]) == [3, 4, 16, 26, 32, 40]
    assert not set("CW") & set(demo["CALM1_HUMAN"])
    assert len(re.findall(r"D.[DN].[DN]G.[IV]...E", demo["CALM1_HUMAN"])) == 4  # EF hands
    assert demo["GFP_AEQVI"][64:67] == "SYG"
    assert [demo["ENLYS_BPT4"][i - 1] for i in (11, 20, 26, 54, 97)] == list("EDTCC")
    assert [demo["RNBR_BACAM"][i - 1] for i in (73, 102)] == list("EH")
    assert [demo["PLAS1_POPNI"][i - 1] for i in (37, 84, 87, 92)] == list("HCHM")
    assert positions("C", demo["BARS_BACAM"]) == [41, 83]  # 40 and 82 without Met
    assert demo["FKB1A_HUMAN"][1:][58] == "W"
    lengths = {"INS_HUMAN": 110, "CALM1_HUMAN": 149, "GFP_AEQVI": 238, "PPIA_HUMAN": 165, "NUC_STAAU": 149}
    assert {name: len(demo[name]) for name in lengths} == lengths
