"""What can be asked and where it can be looked up. Built once in a process for the same files."""

from collections.abc import Sequence
from functools import lru_cache

from openmanus_rl.envs.bm25 import Bm25Index
from openmanus_rl.envs.searchqa.encyclopedia import Document, encyclopedia
from openmanus_rl.envs.searchqa.files import read_documents, read_questions
from openmanus_rl.envs.searchqa.questions import Question, own_questions
from openmanus_rl.errors import UserError


class Library:
    """Documents with a search, and questions about them."""

    def __init__(self, documents: Sequence[Document], questions: Sequence[Question]) -> None:
        self.questions = questions
        self._documents = documents
        # The title counts twice: a page about a thing goes before pages that mention it.
        self._index = Bm25Index(f"{document.title} {document.title} {document.text}" for document in documents)

    def search(self, query: str, limit: int) -> list[Document]:
        """The documents that fit best, best first."""
        return [self._documents[place] for place in self._index.search(query, limit)]


@lru_cache(maxsize=1)
def own_library() -> Library:
    return Library(encyclopedia().documents, own_questions())


@lru_cache(maxsize=2)
def library_from_files(corpus_file: str, questions_file: str) -> Library:
    documents, questions = read_documents(corpus_file), read_questions(questions_file)
    for found, path in ((documents, corpus_file), (questions, questions_file)):
        if not found:
            raise UserError(f"searchqa: {path} is empty", "It is to have a JSON object a line.")
    return Library(documents, questions)
