from .checks import check as check
from .repository import ResultError as ResultError
from .repository import Verification as Verification
from .run_splitting import split_run as split_run
from .site.files import SiteError as SiteError
from .site.write import BuiltSite as BuiltSite
from .site.write import write_site as write_site
from .verification import verify as verify
