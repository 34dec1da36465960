#!/usr/bin/env python3
"""check_sites.py finds checks as they are written, and survivors.txt names checks of the tree.

    test_check_sites.py ROOT
"""
import os
import sys
import unittest

from types import SimpleNamespace

from check_sites import find_sites, judge_list, read_list, sites_in
from prove_checks import judge

SOURCE = '''
/* MIMO_CHECK(comment, MIMO_ERR_SHAPE, "of a comment"); */
static mimo_status look(const char *text, int64_t n)
{
    MIMO_CHECK(strchr(text, ',') && text[n], MIMO_ERR_ARGUMENT, "a comma, and %" PRId64 " more",
               n);
    if (n < 0)
        return mimo_fail(MIMO_ERR_SHAPE, "%" PRId64 " below zero, in %s"
                                         " (or not)", n, text);
    MIMO_CHECK(n > 1, MIMO_ERR_SHAPE, "few");
    MIMO_CHECK(n > 2, MIMO_ERR_SHAPE, "few");
    return mimo_fail(status, "%s", mimo_last_error());
}
'''


class Sites(unittest.TestCase):
    def setUp(self):
        self.sites = sites_in("bridge/a/look.c", SOURCE)

    def test_found(self):
        self.assertEqual([(s.first, s.last, s.condition, s.sentence) for s in self.sites], [
            (5, 6, "strchr(text, ',') && text[n]", "a comma, and %d more"),
            (8, 9, "mimo_fail", "%d below zero, in %s (or not)"),
            (10, 10, "n > 1", "few"), (11, 11, "n > 2", "few")])
        self.assertEqual(self.sites[0].file, "look.c")

    def judge(self, text, sites=None):
        return judge_list(read_list(text), sites or self.sites)

    def test_sentence_alone(self):
        """A check is found again after its file, its condition and its line changed."""
        listed, wrong = self.judge("# a remark\n\nold.c | was | %d below zero, in %s (or not)\n"
                                   "    Because.\n    And so on.\n")
        self.assertEqual(wrong, [])
        self.assertEqual([(s.first, e.reason) for s, e in listed.items()],
                         [(8, "Because. And so on.")])

    def test_more_where_needed(self):
        more = self.sites + sites_in("grid/other.c", 'MIMO_CHECK(n > 2, X, "few");\n')
        listed, wrong = self.judge("look.c | n > 2 | few\n    R.\nother.c | any | few\n    R.\n", more)
        self.assertEqual(wrong, [])
        self.assertEqual([str(s) for s in listed],
                         ["bridge/a/look.c:11: n > 2 | few", "grid/other.c:1: n > 2 | few"])

    def test_wrong_lists(self):
        for text, words in (("look.c | x | gone\n    R.\n", "0 checks are"),
                            ("look.c | n > 7 | few\n    R.\n", "0 checks are"),
                            ("look.c | n > 1 | few\n", "no reason"),
                            ("look.c | n > 1 | few\n    R.\n" * 2, "listed twice")):
            _, wrong = self.judge(text)
            self.assertEqual(len(wrong), 1, text)
            self.assertIn(words, wrong[0])
        for text in ("look.c | n > 1\n", "    R.\n"):
            self.assertRaises(ValueError, read_list, text)


class Verdict(unittest.TestCase):
    """Each check that survives has to be in the list, and each check in the list has to survive."""

    def verdict(self, killers, text, broken=()):
        sites = sites_in("bridge/a/look.c", SOURCE)
        listed, _ = judge_list(read_list(text), sites)
        proof = SimpleNamespace(failed_in={site: [] for site in sites}, broken=list(broken))
        return judge(proof, dict(zip(sites, killers)), listed)

    def test_verdicts(self):
        few = "look.c | n > 1 | few\n    R.\n"
        self.assertEqual(self.verdict(["a", "b", None, "d"], few), [])
        for killers, text, broken, words in (
                (["a", "b", None, "d"], "", [], "fails in no test, and it is not in"),
                (["a", "b", "c", "d"], few, [], "and c fails without it: take it off"),
                (["a", "b", "c", "d"], "", ["t fails by itself"], "t fails by itself")):
            wrong = self.verdict(killers, text, broken)
            self.assertEqual(len(wrong), 1)
            self.assertIn(words, wrong[0])


class Tree(unittest.TestCase):
    root = None

    def test_of_the_tree(self):
        """Every check has a name of its own, and the list names existing checks only."""
        sites = find_sites(self.root)
        self.assertGreater(len(sites), 300)
        names = [(s.file, s.condition, s.sentence) for s in sites]
        self.assertEqual(sorted(n for n in names if names.count(n) > 1), [])
        with open(os.path.join(self.root, "tests/checks/survivors.txt"), encoding="utf-8") as f:
            _, wrong = judge_list(read_list(f.read()), sites)
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    Tree.root = sys.argv.pop()
    unittest.main()
