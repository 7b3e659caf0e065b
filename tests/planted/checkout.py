"""A checkout that belongs to planted.py: a worktree of git, with at most one patch applied."""
import pathlib
import subprocess


class Trouble(Exception):
    """What keeps planted.py from going on."""


def git(folder, *arguments):
    """Its output. Raises Trouble with what it complains about."""
    try:
        ran = subprocess.run(["git", "-C", str(folder), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                             check=False)
    except FileNotFoundError:
        raise Trouble("there is no git on this machine") from None
    if ran.returncode != 0:
        raise Trouble(f"git {' '.join(arguments[:2])} in {folder}: {ran.stderr.strip() or ran.returncode}")
    return ran.stdout.strip()


def is_checkout(folder):
    """Whether the folder is the top of a checkout."""
    try:
        return pathlib.Path(git(folder, "rev-parse", "--show-toplevel")).resolve() == pathlib.Path(folder).resolve()
    except Trouble:
        return False


def why_not_applied(folder, patch):
    """Why git would not apply the patch to what is in the folder; empty: it would."""
    try:
        git(folder, "apply", "--check", "-p1", str(patch))
    except Trouble as trouble:
        return str(trouble)
    return ""


class Checkout:
    """Made at the commit that `source` has checked out, or brought there if it exists."""

    def __init__(self, source, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.commit = git(source, "rev-parse", "HEAD")
        if not self.folder.exists():
            # It may have been there before, and been removed without git.
            git(source, "worktree", "add", "--force", "--detach", str(self.folder), self.commit)
        self.applied = self._git_folder(source) / "planted.patch"  # there while it may be applied
        if self.applied.exists():
            self.take_back()  # of a run that was killed
        changed = git(self.folder, "status", "--porcelain", "--untracked-files=no")
        if changed:
            raise Trouble(f"{self.folder} has changes that are not planted ones; undo them, or take another --work:\n{changed}")
        git(self.folder, "checkout", "--quiet", "--detach", self.commit)

    def _git_folder(self, source):
        """Raises Trouble if somebody may work in the folder."""
        if not is_checkout(self.folder):
            raise Trouble(f"{self.folder} exists and is no checkout of git; take another --work")
        shared = [(pathlib.Path(each) / git(each, "rev-parse", "--git-common-dir")).resolve() for each in (source, self.folder)]
        if shared[0] != shared[1]:
            raise Trouble(f"{self.folder} is a checkout of another repository than {source}; take another --work")
        if git(self.folder, "branch", "--show-current") or self.folder == pathlib.Path(source).resolve():
            raise Trouble(f"{self.folder} is a checkout that somebody works in; take another --work")
        return pathlib.Path(git(self.folder, "rev-parse", "--absolute-git-dir"))

    def apply(self, patch):
        self.applied.write_bytes(patch.read_bytes())
        git(self.folder, "apply", "-p1", str(self.applied))

    def take_back(self):
        try:
            git(self.folder, "apply", "-R", "-p1", str(self.applied))
        except Trouble:
            # It was not applied yet.
            if why_not_applied(self.folder, self.applied):
                raise
        self.applied.unlink()
