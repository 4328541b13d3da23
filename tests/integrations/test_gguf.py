"""Language models from GGUF files: the same numbers as the model that was written, and ordinary from then on."""

import json

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("peft")

from fourier_head.integrations.language_models import load_gguf, tiny_model
from fourier_head.integrations.numbers import NumberLM

PROMPTS = ["mean 0.55:", "the mean is -0.55 and the rest is silence:", "1"]


def write_gguf(path, model, tokenizer):
    """Write a Llama as a GGUF file in float32, with the names and the order of rows that llama.cpp uses."""
    gguf = pytest.importorskip("gguf")
    config = model.config
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    core = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(sorted(core["vocab"], key=core["vocab"].get))
    writer.add_token_merges([" ".join(pair) for pair in core["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    state = {key: value.detach().float().numpy() for key, value in model.state_dict().items()}
    writer.add_tensor("token_embd.weight", state["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", state["model.norm.weight"])
    writer.add_tensor("output.weight", state["lm_head.weight"])
    heads = {"self_attn.q_proj": config.num_attention_heads, "self_attn.k_proj": config.num_key_value_heads}
    for i in range(config.num_hidden_layers):
        for ours, theirs in names.items():
            weight = state[f"model.layers.{i}.{ours}.weight"]
            if ours in heads:  # rotary pairs lie side by side there, half a head apart here
                n, (rows, columns) = heads[ours], weight.shape
                weight = weight.reshape(n, 2, rows // n // 2, columns).swapaxes(1, 2).reshape(rows, columns)
            writer.add_tensor(f"blk.{i}.{theirs}.weight", np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_becomes_an_ordinary_model(tmp_path):
    model, tokenizer = tiny_model()
    path = tmp_path / "tiny.gguf"
    write_gguf(path, model, tokenizer)
    again, words = load_gguf(path)
    assert words("mean 0.55")["input_ids"] == tokenizer("mean 0.55")["input_ids"]
    ids = torch.tensor([tokenizer("the mean is")["input_ids"]])
    with torch.no_grad():
        torch.testing.assert_close(again(input_ids=ids).logits, model(input_ids=ids).logits, atol=1e-5, rtol=1e-5)
    again.save_pretrained(tmp_path / "plain")  # what transformers refuses for a model it read from GGUF
    lm = NumberLM.from_pretrained(path)
    lm.fine_tune(PROMPTS, [0.1, 0.2, 0.3], epochs=1)
    lm.save_pretrained(tmp_path / "saved")
    again = NumberLM.from_pretrained(tmp_path / "saved")
    torch.testing.assert_close(again.predict(PROMPTS).coefficients, lm.predict(PROMPTS).coefficients)


def test_what_is_no_gguf_file_gets_one_clear_sentence(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        load_gguf(tmp_path / "none.gguf")
    (tmp_path / "bad.gguf").write_bytes(b"PK zip")
    with pytest.raises(ValueError, match="is not a GGUF file"):
        load_gguf(tmp_path / "bad.gguf")
