"""The page of ``fairseq-mhe demo``, which streamlit runs anew at each change; bundles as words."""

import sys
from pathlib import Path

import streamlit as st

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.deploy.demo_models import DemoModel

EXAMPLE = "Failed to connect."


@st.cache_resource(show_spinner="Loading ...")
def load(folder: str) -> DemoModel:
    """A bundle, loaded once for all visits."""
    return DemoModel(Path(folder))


def show(model: DemoModel, sentence: str) -> None:
    """One model's column."""
    facts = model.facts
    st.subheader(f"{facts['row']}, {model.attention}")
    st.caption(
        f"{facts['parameters']:,} parameters, {facts['attention_parameters']:,} of them attention"
    )
    try:
        found = model.show(sentence)
    except UserError as error:
        st.error(str(error))
        return
    st.text(found.translation)
    st.caption(
        f"{1000 * found.seconds:,.0f} ms on the CPU; key/value cache at the end "
        f"{found.cache:,} bytes"
    )
    st.image(found.picture, caption="cross-attention: layers downwards, heads to the right")


def page(folders: list[str]) -> None:
    """The box, and a column for each bundle."""
    st.set_page_config(page_title="fairseq-mhe", layout="wide")
    models = [load(folder) for folder in folders]
    source, target = models[0].languages
    st.title(f"fairseq-mhe: {source} to {target}")
    with st.form("text"):
        sentence = st.text_input("A sentence", EXAMPLE)
        st.form_submit_button("Translate")
    for column, model in zip(st.columns(len(models)), models, strict=True):
        with column:
            show(model, sentence)


if __name__ == "__main__":
    page(sys.argv[1:])
