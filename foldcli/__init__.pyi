from foldcli.api.results import Prediction as Prediction
from foldcli.api.results import load as load
from foldcli.api.session import Session as Session
from foldcli.api.session import fold as fold
from foldcli.api.session import search as search
from msa.alignments.files import Alignment as Alignment
