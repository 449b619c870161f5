"""Jobs of libraries on top of torch for ``gpu_traces.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from gpu_torch_jobs import BOTH, Job, between, encoder, event, kept
from torch.profiler import profile


def libraries() -> dict[str, Job]:
    """Lightning's trainer and a model of transformers that generates."""
    return {"lightning": _lightning, "generate_unmarked": _generate}


def _lightning(folder: Path, name: str) -> dict[str, Any]:
    import pytorch_lightning as lightning

    events: list[torch.cuda.Event] = []

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = encoder(3, dtype=torch.float32)

        def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
            events.append(event())
            loss: torch.Tensor = self.net(batch[0][:, None, :].expand(-1, 128, -1)).pow(2).mean()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    rows = torch.utils.data.TensorDataset(torch.randn(2000, 768))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_steps=12, accelerator="gpu", devices=1, **quiet)
    with profile(activities=BOTH) as profiler:
        trainer.fit(Model(), torch.utils.data.DataLoader(rows, batch_size=32))
    return {kept(profiler, folder, name): {"ms": between(events), "marked": False}}


def _generate(folder: Path, name: str) -> dict[str, Any]:
    from transformers import LlamaConfig, LlamaForCausalLM, StoppingCriteria, StoppingCriteriaList

    shape = {
        "hidden_size": 512,
        "intermediate_size": 1376,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "vocab_size": 8000,
    }
    model = LlamaForCausalLM(LlamaConfig(**shape)).to("cuda", torch.bfloat16).eval()
    ids, events = torch.randint(5, 8000, (8, 512), device="cuda"), list[torch.cuda.Event]()

    class Told(StoppingCriteria):
        def __call__(self, ids: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
            events.append(event())
            return torch.zeros(len(ids), dtype=torch.bool, device="cuda")

    asked = {"max_new_tokens": 24, "min_new_tokens": 24, "pad_token_id": 0, "do_sample": False}
    for _ in range(2):
        events.clear()
        with profile(activities=BOTH) as profiler:
            told = StoppingCriteriaList([Told()])
            first = event()
            model.generate(ids, attention_mask=torch.ones_like(ids), stopping_criteria=told, **asked)
            torch.cuda.synchronize()
    return {kept(profiler, folder, name): {"ms": between([first, *events]), "marked": False}}
