"""Fields that do not touch the cache, by what they are about."""


def words(text: str) -> tuple[str, ...]:
    """Names in one text."""
    return tuple(text.split())


# Names, vocabulary, training and serialisation: no family's attention reads them. The end are settings of generation,
# which older configs hold.
COMMON_IGNORES = words("""
architectures auto_map transformers_version _name_or_path name_or_path _attn_implementation attn_implementation
_attn_implementation_autoset attn_impl vocab_size bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id
decoder_start_token_id tie_word_embeddings tie_encoder_decoder prefix unk_token_id tokenizer_class initializer_range
initializer_std rms_norm_eps layer_norm_eps layernorm_epsilon norm_eps norm_type hidden_act hidden_activation
hidden_size intermediate_size attention_bias attention_dropout attention_out_bias qkv_bias mlp_bias resid_pdrop
embd_pdrop hidden_dropout dropout use_cache pretraining_tp quantization_config compression_config quantization
id2label label2id num_labels problem_type finetuning_task task_specific_params return_dict output_attentions
output_hidden_states torchscript use_bfloat16 pruned_heads chunk_size_feed_forward is_decoder is_encoder_decoder
add_cross_attention cross_attention_hidden_size tf_legacy_loss gradient_checkpointing unsloth_version unsloth_fixed
cache_implementation

max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p
typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
num_return_sequences output_scores return_dict_in_generate forced_bos_token_id forced_eos_token_id
remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens
""")

# Mixtures of experts and the order of dense layers among them.
MOE_IGNORES = words("""
moe_intermediate_size shared_expert_intermediate_size num_experts num_local_experts num_experts_per_tok
num_experts_per_token n_routed_experts n_shared_experts num_shared_experts n_group topk_group topk_method
num_expert_group norm_topk_prob moe_renormalize routed_scaling_factor scoring_func ep_size moe_layer_freq
first_k_dense_replace decoder_sparse_step mlp_only_layers mlp_layer_types output_router_logits router_aux_loss_coef
router_jitter_noise aux_loss_alpha seq_aux moe_router_dtype moe_router_activation_func use_grouped_topk swiglu_limit
swiglu_alpha router_bias experts_per_token use_qk_norm moe_topk
""")

# Latent attention: the query's rank is not cached, and every head has a key and a value after expansion.
LATENT_IGNORES = ("q_lora_rank", "num_key_value_heads", "head_dim")

# Layers for multi-token prediction: a draft, which the importer mentions and does not add.
MTP_IGNORES = words("""
num_nextn_predict_layers num_mtp_layers mtp_num_hidden_layers mtp_use_dedicated_embeddings
index_share_for_mtp_iteration mtp_num_layers mtp_replicate_modules
""")
