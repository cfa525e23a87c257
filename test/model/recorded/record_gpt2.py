"""Records a small random GPT2LMHeadModel as PyPI's `transformers` saves it, and the losses of 20 steps of training it with
PyTorch, for test/model/huggingface_test.cpp and test/commands/huggingface_test.cpp.

    pip install torch transformers; python test/model/recorded/record_gpt2.py test/model/recorded/gpt2
"""
import json
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

V, T, ROWS, STEPS = 61, 16, 4, 20


def token(i):
    """The i-th token of the text that is trained on; the test writes the same."""
    return (i * i + 3 * i) % 47 if i % 5 else (7 * i) % V


def make_model():
    torch.manual_seed(3)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=V, n_positions=T, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                   bos_token_id=0, eos_token_id=0))
    with torch.no_grad():  # biases and norms that are not all zeros and ones
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def batch(step):
    rows = [[token((step * ROWS + r) * T + i) for i in range(T + 1)] for r in range(ROWS)]
    ids = torch.tensor(rows)
    return ids[:, :-1], ids[:, 1:]


def train(model, steps=STEPS, lr=1e-2):
    decays = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0}], lr=lr,
                                  betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(steps):
        inputs, targets = batch(step)
        logits = model(inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.view(-1, V), targets.reshape(-1))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return losses


if __name__ == "__main__":
    folder = sys.argv[1]
    made = make_model()
    made.save_pretrained(folder)
    json.dump({"losses": train(made)}, open(folder + "/losses.json", "w"))
